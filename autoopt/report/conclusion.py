"""The end of a run on the screen: a short table, a few notes, the answer and the next steps.

Fits into 100 columns. `run.py` writes everything that is known, for `autoopt best` and `--verbose`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import known_metric
from autoopt.report.change import quality_text, ratio_change
from autoopt.report.figures import first_objective, is_better, is_quality
from autoopt.report.formatting import clock_text, metric_text, plural, short
from autoopt.report.measurement import measured_tables
from autoopt.report.run import REUSED, answers, part_title, single_model, target_text, trials_line
from autoopt.report.steps import steps_text
from autoopt.report.table import Table, write_lines, write_table
from autoopt.report.verdict import headlines
from autoopt.results import ModelResult, RunResult

WIDTH = 100
"""Characters of a row."""
STEPS_WIDTH = 24
"""Characters that the passes of a model have at least."""
MOST_NOTES = 4
SMALLER = 0.95
"""Size relative to the best model's from which another model is worth a row."""
CHANGE = "change"
TITLES = {"latency_p50": "latency", "time_to_first_token": "first token"}
BUSY = "the machine was busy or unsteady during the measurement"
UNVERIFIED = (
    "the lossy model is unverified: compared on generated inputs only; add --data FILE to judge it by accuracy, "
    "or --fidelity to accept it as it is"
)


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
        *_best_lines(result),
        _work_line(result),
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
        parts = [_table(part.result, labelled(part.result), part_title(part)) for part in result.parts]
        return [*parts, short_table(result)]
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
        tables += [_table(own_result, rows, title), *measured_tables(target.result.best)]
    return tables


def short_table(result: RunResult) -> Table:
    """The source, the best model, and the models that are smaller or of higher quality."""
    return _table(result, labelled(result))


@dataclass(frozen=True)
class Row:
    """A model with its label."""

    label: str
    model: ModelResult


def labelled(result: RunResult) -> list[Row]:
    """The source, the best model, the best lossy one, and one model for each way to be better than the best."""
    rows = [Row("source", result.baseline.model)]
    best = result.best
    if best is not None and not best.is_source:
        rows.append(Row("best", best))
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
        if quality_text(name, own[name]) != quality_text(name, other[name]):
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


def _table(result: RunResult, rows: Sequence[Row], title: str = "") -> Table:
    models = [row.model for row in rows]
    columns, right = [[row.label for row in rows]], []
    names = ["model"]
    for metric in headlines(result):
        if not any(metric in model.metrics for model in models):
            continue
        right.append(len(names))
        names.append(TITLES.get(metric, metric.replace("_", " ")))
        columns.append(_values(metric, models))
        if len(models) > 1 and CHANGE not in names and not is_quality(metric):
            names.append(CHANGE)
            columns.append([_change(metric, model) for model in models])
    if len(models) > 1:
        used = sum(max(map(len, (name, *cells))) + 2 for name, cells in zip(names, columns, strict=True))
        names.append("passes")
        columns.append([_passes(model, WIDTH - used) for model in models])
    strong = None
    if result.best is not None:
        strong = int(not result.best.is_source)  # the source model stands first
    cells = tuple(zip(*columns, strict=True))
    return Table(tuple(names), cells, title=title, right=frozenset(right), strong=strong)


def _values(metric: str, models: Sequence[ModelResult]) -> list[str]:
    """The values of a metric; shares have a second decimal if they would look equal without it."""
    values = [model.metrics.get(metric) for model in models]
    if not is_quality(metric):
        return ["-" if value is None else metric_text(metric, value) for value in values]
    for decimals in (1, 2):
        texts = ["-" if value is None else quality_text(metric, value, decimals) for value in values]
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


def _best_lines(result: RunResult) -> list[str]:
    """All passes of the best model, for which the table has no room."""
    if result.best is None or result.best.is_source or result.targets or result.parts:
        return []
    return [f"best: {steps_text(result.best.short_chain, result.best.point)}"]


def _work_line(result: RunResult) -> str:
    """`run 0123456789ab: 3 trials: 2 ok, 1 refused (stopped at 3 trials), 0:41`."""
    seconds = clock_text(result.seconds.get("total", 0.0))
    work = f"{trials_line(result)}, {seconds}"
    if result.reused:
        work = REUSED
    elif result.is_interim:
        work = f"{result.status}: {work}"
    return f"run {short(result.run)}: {work}"


def _note_lines(result: RunResult, shown: Collection[str]) -> list[str]:
    """The notes that matter to the answer, a few of them."""
    notes = []
    if result.best_lossy is not None:
        notes.append(UNVERIFIED)
    notes += [note for note in result.notes if note not in shown]
    parts = [target.result for target in result.targets] or [result]
    if any(part.best is not None and part.best.measured.busy for part in parts):
        notes.append(BUSY)
    lines = [f"note: {one_line(note)}" for note in notes[:MOST_NOTES]]
    if len(notes) > MOST_NOTES:
        lines.append(f"and {plural(len(notes) - MOST_NOTES, 'more note')}: autoopt best")
    return lines
