"""A result on the screen: all of it for `autoopt runs RUN` and `--verbose`, the conclusion at the end of a run.

The conclusion fits into 100 columns: a short table, a few notes, the answer and the next steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TextIO

from autoopt.errors import one_line
from autoopt.option_names import option
from autoopt.report.measurement import disturbance
from autoopt.report.run_view import RunView, chosen_models
from autoopt.report.table import write_lines, write_table
from autoopt.report.words.formatting import clock_text, plural, short
from autoopt.report.words.steps import steps_text
from autoopt.results import RunResult
from autoopt.results.figures import first_objective

MOST_NOTES = 4
WIDE = 1.2
"""Ratio of an interval's ends above which a note says why it is so wide."""
REUSED = "answered from the store: an identical run has finished, so nothing was executed"


def write_run(
    result: RunResult,
    stream: TextIO,
    *,
    verbose: bool = False,
    files: Sequence[str] = (),
    next_step: str = "",
    shown_notes: Collection[str] = (),
) -> None:
    """Write the whole result for people, the answer last; `verbose` also counts the work.

    `files` are lines on the files that were written, `next_step` says what to do with the answer, and `shown_notes` are
    the notes that the progress has shown during the run.
    """
    view = RunView(result)
    for table in view.tables:
        write_table(table, stream)
    notes = [f"note: {one_line(note)}" for note in result.other_notes if note not in shown_notes]
    trials, time = view.work
    lines = [*view.caveats, *notes, trials]
    if verbose:
        for name, counts in (("pass runs", result.pass_runs), ("evaluations", result.evaluations)):
            lines.append(f"{name}: {counts.executed} executed, {counts.reused} reused")
    lines += [time, *([REUSED] if result.reused else []), *view.measured, *map(one_line, result.warnings)]
    if result.targets:
        lines += view.answers[:-1]
    write_lines([*lines, *files, "", " ".join(filter(None, (view.headline, view.lead, next_step)))], stream)


def write_conclusion(
    result: RunResult,
    stream: TextIO,
    *,
    files: Sequence[str] = (),
    next_steps: Sequence[str] = (),
    shown_notes: Collection[str] = (),
) -> None:
    """Write the result in short, the answer last; `next_steps` say what to do with it, the others are as above."""
    view = RunView(result)
    for table in view.short_tables:
        write_table(table, stream)
    lines = [
        "",
        *_model_lines(result),
        *_front_lines(result),
        *_work_lines(view),
        *_note_lines(result, shown_notes),
        *files,
        "",
        *view.answers,
        *map(one_line, result.warnings),
        *next_steps,
    ]
    write_lines(lines, stream)


def _model_lines(result: RunResult) -> list[str]:
    """All passes of the best models, for which the table has no room, and how to get the models of other rows."""
    if result.targets or result.parts:
        return []
    _, *rows = chosen_models(result)
    best_rows = [row for row in rows if row.label in ("best", "lossy")]
    lines = [f"{row.label}: {steps_text(row.model.short_chain, row.model.point)}" for row in best_rows]
    others = [row.model.trial for row in rows if row not in best_rows and row.model.trial is not None]
    if others:
        lines.append(f"to use another row: autoopt export {short(result.run)} {others[0]}")
    return lines


def _front_lines(result: RunResult) -> list[str]:
    """The size of the Pareto front of a run with several objectives, and how to see it."""
    if len(result.objectives) < 2 or not result.front or result.targets or result.parts:
        return []
    text = f"Pareto front: {plural(len(result.front), 'model')}"
    doubtful = sum(bool(model.rivals) for model in result.front)
    if doubtful:
        text += f", {doubtful} with no certain advantage over another one"
    return [f"{text}: autoopt runs {short(result.run)}"]


def _work_lines(view: RunView) -> list[str]:
    """`run 0123456789ab, 0:41: 3 trials: 2 ok, 1 refused`, then why the search stopped."""
    result = view.result
    run = f"run {short(result.run)}"
    if result.reused:
        return [f"{run}: {REUSED}"]
    if result.is_interim:
        run += f", {result.status}"
    lines = [f"{run}, {clock_text(result.seconds.get('total', 0.0))}: {view.trials}"]
    return [*lines, result.stopped] if result.stopped else lines


def _note_lines(result: RunResult, shown: Collection[str]) -> list[str]:
    """The first notes, with the reason for a wide interval if it is the machine.

    A narrow interval has taken the disturbance into account.
    """
    notes = [note for note in result.other_notes if note not in shown]
    best = result.better_model
    if best is not None and not result.undecided and best.measured.busy:
        ratio = best.ratios.get(first_objective(result).metric)
        if ratio is not None and ratio.high > WIDE * ratio.low:
            reason, again = disturbance(best.measured), option("again", "measurements")
            notes.append(f"the range is wide because {reason}; {again} on a quieter machine narrows it")
    lines = [f"note: {one_line(note)}" for note in notes[:MOST_NOTES]]
    if len(notes) > MOST_NOTES:
        lines.append(f"and {plural(len(notes) - MOST_NOTES, 'more note')}: autoopt runs latest")
    return lines
