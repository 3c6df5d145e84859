"""The end of a run on the screen: a short table, a few notes, the answer and the next steps.

Fits into 100 columns. `run.py` writes everything that is known, for `autoopt best` and `--verbose`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import known_metric
from autoopt.report.change import figure_text, ratio_change
from autoopt.report.figures import first_objective, is_better, is_quality
from autoopt.report.formatting import clock_text, percent, plural, short
from autoopt.report.measurement import disturbance, measured_tables
from autoopt.report.run import CHANGE, COLUMN_TITLES, REUSED, answers, single_model, target_text, trial_counts
from autoopt.report.steps import steps_text
from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.verdict import gains, headlines
from autoopt.results import SOURCE, ModelResult, RunResult

WIDTH = 100
"""Characters of a row."""
STEPS_WIDTH = 24
"""Characters that the passes of a model have at least."""
MOST_NOTES = 4
SMALLER = 0.95
"""Size relative to the best model's from which another model is worth a row."""
WIDE = 1.2
"""Upper end of an interval relative to the lower one from which the reader wonders why it is so wide."""


def write_conclusion(
    result: RunResult,
    stream: TextIO,
    *,
    files: Sequence[str] = (),
    next_steps: Sequence[str] = (),
    shown_notes: Collection[str] = (),
) -> None:
    """Write the result for people, the answer last.

    Args:
        result: The result.
        stream: Receives the text.
        files: Lines about the files that were written.
        next_steps: What to do with the answer, a line each.
        shown_notes: Notes that the progress has shown during the run.
    """
    for table in short_tables(result):
        write_table(table, stream)
    lines = [
        "",
        *_model_lines(result),
        *_work_lines(result),
        *_note_lines(result, shown_notes),
        *files,
        "",
        *answers(result),
        *next_steps,
    ]
    write_lines(lines, stream)


def short_tables(result: RunResult) -> list[Table]:
    """A short table of the models, and the tables of what else the DAG asks to measure; for each target or model."""
    if result.parts:
        together = _table(result, labelled(result), "together")
        return [_parts_table(result), together] if result.baseline.metrics else [_parts_table(result)]
    if not result.targets:
        return [short_table(result), *measured_tables(result.best)]
    tables = []
    for target in result.targets:
        own_result = replace(target.result, objectives=result.objectives, constraints=result.constraints)
        rows = labelled(own_result)
        single = single_model(result, target)
        if single is not None and all(single.candidate.key != row.model.candidate.key for row in rows):
            rows.append(Row("single", single))
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


@dataclass(frozen=True)
class Row:
    """A model with its label."""

    label: str
    model: ModelResult


@dataclass(frozen=True)
class _Column:
    """A column of the table of models."""

    name: str
    cells: Sequence[str]
    right: bool = False
    """True for numbers, which end at the right."""

    @property
    def width(self) -> int:
        return max(map(len, (self.name, *self.cells)))


def labelled(result: RunResult) -> list[Row]:
    """The source, the best model, the best lossy one, and one model for each way to be better than the best."""
    rows = [Row("source", result.baseline.model)]
    best = result.best
    if result.better_model is not None:
        rows.append(Row("best", result.better_model))
    if result.best_lossy is not None:
        rows.append(Row("lossy", result.best_lossy))
    if best is None or len(rows) != 2:
        return rows
    labels = set()
    for model in result.models[2:]:
        label = _advantage(result, model, best)
        if label and label not in labels and not _is_worse(result, model):
            labels.add(label)
            rows.append(Row(label, model))
    return rows


def _advantage(result: RunResult, model: ModelResult, best: ModelResult) -> str:
    """The way in which a model is noticeably better than the best one; empty if it is not."""
    own, other = model.metrics, best.metrics
    if "size" in own and "size" in other and own["size"] < SMALLER * other["size"]:
        return "smaller"
    for name in filter(is_quality, headlines(result)):
        metric = known_metric(name)
        if metric is None or name not in own or name not in other:
            continue
        if figure_text(name, own[name]) != figure_text(name, other[name]):
            word = "lower" if metric.direction == "minimize" else "higher"
            if is_better(own[name], other[name], metric.direction):
                return f"{word} {name}"
    return ""


def _is_worse(result: RunResult, model: ModelResult) -> bool:
    """True if a model is certainly worse than the source by the first objective."""
    objective = first_objective(result)
    ratio = model.ratios.get(objective.metric)
    if ratio is None:
        return False
    if objective.goal == "maximize":
        return ratio.high < 1
    return ratio.low > 1


def _table(result: RunResult, rows: Sequence[Row], title: str = "", *, numbered: bool = True) -> Table:
    """The table of some models; `numbered`: with the numbers of their trials, which `autoopt export` takes."""
    models = [row.model for row in rows]
    columns = [_Column("model", [row.label for row in rows])]
    if numbered and any(model.trial is not None for model in models):
        numbers = ["" if model.trial is None else str(model.trial) for model in models]
        columns.append(_Column("trial", numbers, right=True))
    columns += _metric_columns(result, models)
    if len(models) > 1 and not result.parts:
        room = WIDTH - sum(column.width + 2 for column in columns)
        columns.append(_Column("passes", [_passes(model, room) for model in models]))
    strong = None
    if result.best is not None:
        strong = int(not result.best.is_source)  # the source model stands first
    names = tuple(column.name for column in columns)
    cells = tuple(zip(*(column.cells for column in columns), strict=True))
    right = frozenset(number for number, column in enumerate(columns) if column.right)
    return Table(names, cells, title=title, right=right, strong=strong)


def _metric_columns(result: RunResult, models: Sequence[ModelResult]) -> list[_Column]:
    """The headline metrics, and the change of the first one that is not a quality."""
    measured: set[str] = set().union(*(model.metrics for model in models))
    columns: list[_Column] = []
    for metric in headlines(result):
        if metric not in measured:
            continue
        title = COLUMN_TITLES.get(metric, metric.replace("_", " "))
        columns.append(_Column(title, _values(metric, models), right=True))
        has_change = any(column.name == CHANGE for column in columns)
        if len(models) > 1 and not has_change and not is_quality(metric):
            columns.append(_Column(CHANGE, [_change(metric, model) for model in models]))
    return columns


def _values(metric: str, models: Sequence[ModelResult]) -> list[str]:
    """The values of a metric; shares have a second decimal if they would look equal without it."""
    values = [model.metrics.get(metric) for model in models]
    for decimals in (1, 2):
        texts = [figure_text(metric, value, decimals) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def _change(metric: str, model: ModelResult) -> str:
    if model.is_source or metric not in model.ratios:
        return ""
    return ratio_change(metric, model.ratios[metric])


def _passes(model: ModelResult, room: int) -> str:
    if model.is_source:
        return ""
    return steps_text(model.short_chain, model.point, max(room, STEPS_WIDTH))


def _model_lines(result: RunResult) -> list[str]:
    """All passes of the best models, for which the table has no room, and how to get the model of another row."""
    if result.targets or result.parts:
        return []
    _, *rows = labelled(result)
    found = [row for row in rows if row.label in ("best", "lossy")]
    lines = [f"{row.label}: {steps_text(row.model.short_chain, row.model.point)}" for row in found]
    others = [row.model.trial for row in rows if row not in found and row.model.trial is not None]
    if others:
        lines.append(f"to use another row: autoopt export {short(result.run)} {others[0]}")
    return lines


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
    notes = [note for note in result.notes if note not in shown]
    notes += _disturbance(result)
    lines = [f"note: {one_line(note)}" for note in notes[:MOST_NOTES]]
    if len(notes) > MOST_NOTES:
        lines.append(f"and {plural(len(notes) - MOST_NOTES, 'more note')}: autoopt best")
    return lines
