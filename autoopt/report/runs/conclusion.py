"""The end of a run on the screen: a short table, a few notes, the answer and the next steps.

Fits into 100 columns. `run.py` writes everything that is known, for `autoopt best` and `--verbose`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import known_metric
from autoopt.report.elements.table import Column, Table, table_of, write_lines, write_table
from autoopt.report.runs.measurement import disturbance, measured_tables
from autoopt.report.runs.run import (
    CHANGE,
    COLUMN_TITLES,
    REUSED,
    LabelledModel,
    answers,
    best_row,
    change_cell,
    change_title,
    single_model,
    target_text,
    trial_counts,
)
from autoopt.report.words.formatting import clock_text, percent, plural, short
from autoopt.report.words.limits import figure_text, limits_of
from autoopt.report.words.steps import steps_text
from autoopt.report.words.verdict import gains, headlines
from autoopt.results import NO_ADVANTAGE, SOURCE, ModelResult, RunResult
from autoopt.results.figures import first_objective, is_better, is_quality

WIDTH = 100
"""Characters of a row."""
STEPS_WIDTH = 24
"""Smallest width of the passes of a model, in characters."""
MOST_NOTES = 4
SMALLER = 0.95
"""Size relative to the best model's below which another model is worth a row."""
WIDE = 1.2
"""Ratio of an interval's ends above which a note says why it is so wide."""


def write_conclusion(
    result: RunResult,
    stream: TextIO,
    *,
    files: Sequence[str] = (),
    next_steps: Sequence[str] = (),
    shown_notes: Collection[str] = (),
) -> None:
    """Write the result for people, the answer last.

    `files` are lines on the files that were written, `next_steps` what to do with the answer, and `shown_notes` the
    notes that the progress has shown during the run.
    """
    for table in short_tables(result):
        write_table(table, stream)
    lines = [
        "",
        *_model_lines(result),
        *_front_lines(result),
        *_work_lines(result),
        *_note_lines(result, shown_notes),
        *files,
        "",
        *answers(result),
        *map(one_line, result.warnings),
        *next_steps,
    ]
    write_lines(lines, stream)


def short_tables(result: RunResult) -> list[Table]:
    """A short table of the models, and the tables of what else the DAG asks to measure; for each target or model."""
    if result.parts:
        tables = [_parts_table(result)]
        if result.baseline.metrics:
            tables.append(_table(result, labelled(result), "together"))
        return tables
    if not result.targets:
        return [short_table(result), *measured_tables(result.best)]
    tables = []
    for target in result.targets:
        own_result = replace(target.result, objectives=result.objectives, constraints=result.constraints)
        rows = labelled(own_result)
        single = single_model(result, target)
        if single is not None and all(single.candidate.key != row.model.candidate.key for row in rows):
            rows.append(LabelledModel("single", single))
        title = f"target {target.name}: {target_text(target)}"
        # Trials are numbered for each target, and the best model may be another target's.
        tables += [_table(own_result, rows, title, numbered=False), *measured_tables(target.result.best)]
    return tables


def _parts_table(result: RunResult) -> Table:
    """The chosen models of a set, with their changes when measured by themselves."""
    rows = []
    for part in result.parts:
        change = "" if part.model.is_source else ", ".join(gains(part.result, part.model))
        rows.append((part.name, percent(part.share), change))
    used = sum(max(map(len, cells)) + 2 for cells in zip(*rows, strict=True))
    passes = [_passes(part.model, WIDTH - used) or SOURCE for part in result.parts]
    cells = tuple((*row, text) for row, text in zip(rows, passes, strict=True))
    return Table(("model", "time", "by itself", "passes"), cells, right=frozenset({1}))


def short_table(result: RunResult) -> Table:
    """The source, the best model, and the models that are smaller or of higher quality."""
    return _table(result, labelled(result))


def labelled(result: RunResult) -> list[LabelledModel]:
    """The source, the best model, the best lossy one, and one model for each way to be better than the best."""
    rows = [LabelledModel("source", result.baseline.model)]
    best = result.best
    if result.better_model is not None:
        rows.append(LabelledModel("best", result.better_model))
    if result.best_lossy is not None:
        rows.append(LabelledModel("lossy", result.best_lossy))
    if best is None or len(rows) != 2:
        return rows
    labels = set()
    for model in result.models[2:]:
        label = _advantage(result, model, best)
        if label and label not in labels and not _is_worse(result, model):
            labels.add(label)
            rows.append(LabelledModel(label, model))
    return rows


def _advantage(result: RunResult, model: ModelResult, best: ModelResult) -> str:
    """The way in which a model is noticeably better than the best one; empty if it is not."""
    size, best_size = model.metrics.get("size"), best.metrics.get("size")
    if size is not None and best_size is not None and size < SMALLER * best_size:
        return "smaller"
    for name in filter(is_quality, headlines(result)):
        text = _better_quality(name, model, best)
        if text:
            return text
    return ""


def _better_quality(name: str, model: ModelResult, best: ModelResult) -> str:
    """`higher accuracy`, if people see a difference to the best model; else empty."""
    metric, value, best_value = known_metric(name), model.metrics.get(name), best.metrics.get(name)
    if metric is None or value is None or best_value is None:
        return ""
    if figure_text(name, value) == figure_text(name, best_value):
        return ""
    if not is_better(value, best_value, metric.direction):
        return ""
    if metric.direction == "minimize":
        return f"lower {name}"
    return f"higher {name}"


def _is_worse(result: RunResult, model: ModelResult) -> bool:
    """True if a model is certainly worse than the source by the first objective."""
    objective = first_objective(result)
    ratio = model.ratios.get(objective.metric)
    if ratio is None:
        return False
    if objective.goal == "maximize":
        return ratio.high < 1
    return ratio.low > 1


def _table(result: RunResult, rows: Sequence[LabelledModel], title: str = "", *, numbered: bool = True) -> Table:
    """The table of some models; `numbered`: with the numbers of their trials, which `autoopt export` takes."""
    models = [row.model for row in rows]
    columns = [Column("model", [row.label for row in rows])]
    if numbered:
        columns += _trial_columns(models)
    columns += _metric_columns(result, models)
    if len(models) > 1 and not result.parts:
        room = WIDTH - sum(column.width + 2 for column in columns)
        columns.append(Column("passes", [_passes(model, room) for model in models]))
    return table_of(columns, title, best_row(result))


def _trial_columns(models: Sequence[ModelResult]) -> list[Column]:
    """The numbers of the models' trials; no column if no model is from a trial."""
    numbers = ["" if model.trial is None else str(model.trial) for model in models]
    if not any(numbers):
        return []
    return [Column("trial", numbers, right=True)]


def _metric_columns(result: RunResult, models: Sequence[ModelResult]) -> list[Column]:
    """The headline metrics, and the change of the first one that is not a quality."""
    measured: set[str] = set().union(*(model.metrics for model in models))
    columns: list[Column] = []
    for metric in headlines(result):
        if metric not in measured:
            continue
        title = COLUMN_TITLES.get(metric, metric.replace("_", " "))
        limits = limits_of(metric, result.constraints, result.baseline.metrics)
        columns.append(Column(title, _values(metric, models, limits), right=True))
        has_change = any(column.name.startswith(CHANGE) for column in columns)
        if len(models) > 1 and not has_change and not is_quality(metric):
            columns.append(Column(change_title(metric, result), [change_cell(metric, model) for model in models]))
    return columns


def _values(metric: str, models: Sequence[ModelResult], limits: Sequence[float]) -> list[str]:
    """The values of a metric; shares have a second decimal if they would look equal without it."""
    values = [model.metrics.get(metric) for model in models]
    for decimals in (1, 2):
        texts = [figure_text(metric, value, decimals, limits) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def _passes(model: ModelResult, room: int) -> str:
    if model.is_source:
        return ""
    return steps_text(model.short_chain, model.point, max(room, STEPS_WIDTH))


def _model_lines(result: RunResult) -> list[str]:
    """All passes of the best models, for which the table has no room, and how to get the model of another row."""
    if result.targets or result.parts:
        return []
    _, *rows = labelled(result)
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
    doubtful = sum(any(flag.startswith(NO_ADVANTAGE) for flag in model.flags) for model in result.front)
    if doubtful:
        text += f", {doubtful} with {NO_ADVANTAGE} another one"
    return [f"{text}: autoopt best {short(result.run)}"]


def _work_lines(result: RunResult) -> list[str]:
    """`run 0123456789ab, 0:41: 3 trials: 2 ok, 1 refused`, then why the search stopped."""
    run = f"run {short(result.run)}"
    if result.reused:
        return [f"{run}: {REUSED}"]
    if result.is_interim:
        run += f", {result.status}"
    lines = [f"{run}, {clock_text(result.seconds.get('total', 0.0))}: {trial_counts(result)}"]
    if result.stopped:
        lines.append(result.stopped)
    return lines


def _disturbance(result: RunResult) -> list[str]:
    """The reason for a wide interval, if the machine is one. A narrow one has taken the disturbance into account."""
    best = result.best
    if best is None or best.is_source or result.undecided or not best.measured.busy:
        return []
    ratio = best.ratios.get(first_objective(result).metric)
    if ratio is None or ratio.high <= WIDE * ratio.low:
        return []
    return [f"the range is wide because {disturbance(best.measured)}; --remeasure all on a quieter machine narrows it"]


def _note_lines(result: RunResult, shown: Collection[str]) -> list[str]:
    """The notes that matter to the answer, a few of them."""
    notes = [note for note in result.other_notes if note not in shown]
    notes += _disturbance(result)
    lines = [f"note: {one_line(note)}" for note in notes[:MOST_NOTES]]
    if len(notes) > MOST_NOTES:
        lines.append(f"and {plural(len(notes) - MOST_NOTES, 'more note')}: autoopt best")
    return lines
