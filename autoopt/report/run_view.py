"""The view of a result: what is said of a run, once. The terminal, pages and artifacts show parts of it.

`RunView` holds the sentences and `tables` all figures; `short_tables` are those at the end of a run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from autoopt.errors import one_line
from autoopt.metrics import MEDIAN_LATENCY, is_ratio_metric, known_metric
from autoopt.report.measurement import measured_lines, measured_tables
from autoopt.report.table import Column, Table, table_of
from autoopt.report.words.change import change_of
from autoopt.report.words.formatting import (
    ALL_MEASUREMENTS,
    counts_text,
    figure_text,
    limits_of,
    percent,
    plural,
    seconds_text,
    short,
)
from autoopt.report.words.steps import shared_flags, steps_text
from autoopt.report.words.verdict import gains, headlines, verdict, verdict_lines
from autoopt.results import SOURCE, ChosenTarget, ModelResult, PartResult, RunResult
from autoopt.results.figures import first_objective, is_better, is_quality, kind, metrics_of

WIDTH = 100
"""Characters of a row of a short table."""
STEPS_WIDTH = 24
"""Smallest width of the passes of a model there, in characters."""
SMALLER = 0.95
"""Size relative to the best model's below which another model is worth a row."""
COLUMN_TITLES = {"latency_p50": "latency", "time_to_first_token": "first token"}


class LabelledModel(NamedTuple):
    """A row of a table of models."""

    label: str
    model: ModelResult

    @property
    def name(self) -> str:
        """The label with the number of the trial, or else the beginning of the artifact's digest."""
        if self.model.is_source or not self.model.artifact:
            return self.label
        if self.model.trial is not None:
            return f"{self.label}, trial {self.model.trial}"
        return f"{self.label} {short(self.model.artifact)[:8]}"


@dataclass(frozen=True)
class RunView:
    """The words for a result: lines of plain text, the same in the terminal, on pages and in artifacts."""

    result: RunResult

    @cached_property
    def answers(self) -> list[str]:
        """The answer, a sentence on each line; over several targets, also those of targets that were not compared."""
        if not self.result.targets:
            return verdict_lines(self.result)
        chosen = self.result.choice
        known = (chosen.name, *chosen.models) if chosen else ()
        others = [target for target in self.result.targets if target.name not in known]
        return [*(f"target {target.name}: {verdict(target.result)}" for target in others), self.headline]

    @cached_property
    def headline(self) -> str:
        """The answer for all targets; without several, the first sentence of the answer."""
        if not self.result.targets:
            return verdict_lines(self.result)[0]
        chosen = self.result.choice
        target = next((each for each in self.result.targets if chosen and each.name == chosen.name), None)
        if chosen is None or target is None:
            return verdict(self.result.targets[0].result)
        title = f"Best on this machine: {target.name} ({target_text(target)})."
        if self.result.best is None or chosen.name not in chosen.models:
            return f"{title} {verdict(target.result)}"
        if first_objective(self.result).metric != MEDIAN_LATENCY:
            return f"{title} Beside your model on that target: {verdict(self.result)}"
        return f"{title} Beside your model on {self.result.targets[0].name}: {verdict(self.result)}"

    @cached_property
    def lead(self) -> str:
        """The sentences after the headline; the answers for several targets stand with each."""
        if self.result.targets:
            return ""
        return " ".join(self.answers[1:])

    @cached_property
    def trials(self) -> str:
        """`3 trials: 2 ok, 1 refused`."""
        total, colon, outcomes = counts_text(self.result.trial_counts).partition(": ")
        return f"{plural(int(total), 'trial')}{colon}{outcomes}"

    @cached_property
    def work(self) -> list[str]:
        """The trials with the reason why the search stopped, and `time 41.2 s (baseline 3.0, search 30.1)`."""
        trials = self.trials
        if self.result.stopped:
            trials += f" ({self.result.stopped})"
        return [trials, f"time {seconds_text(self.result.seconds)}"]

    @cached_property
    def caveats(self) -> list[str]:
        """The caveats of all models, each once, with the models that it applies to; those of a set by their names."""
        searches = [(f"target {target.name}: ", "", target.result) for target in self.result.targets]
        searches = searches or [("", "", self.result)]
        searches += [(f"model {part.name}: ", f" of model {part.name}", part.result) for part in self.result.parts]
        models_by_flag: dict[str, list[str]] = {}
        lines: list[str] = []
        for prefix, owner, part in searches:
            shared = shared_flags(part)
            lines += [f"{prefix}all candidates: {one_line(flag)}" for flag in sorted(shared)]
            for row in labelled_models(part):
                for flag in row.model.flags:
                    if flag not in shared:
                        models_by_flag.setdefault(one_line(flag), []).append(f"{row.name}{owner}")
        lines += [f"* {', '.join(dict.fromkeys(models))}: {flag}" for flag, models in models_by_flag.items()]
        return lines

    @cached_property
    def measured(self) -> list[str]:
        """The measurements of the best model of each target, in lines."""
        if not self.result.targets:
            return measured_lines(self.result.best)
        lines = []
        for target in self.result.targets:
            lines += [f"target {target.name}: {line}" for line in measured_lines(target.result.best)]
        return lines

    @cached_property
    def tables(self) -> list[Table]:
        """All models with every metric, for each target or model of a set, and what else the DAG asks to measure."""
        result = self.result
        if result.parts:
            tables = []
            for part in result.parts:
                title = f"model {part.name}: {percent(part.share)} of the time, run {short(part.result.run)}"
                tables.append(model_table(part.result, title=title))
            if result.baseline.metrics:
                tables.append(model_table(result, title=f"together, run {short(result.run)}: {result.status}"))
            return tables
        if not result.targets:
            return [model_table(result), *measured_tables(result.best)]
        tables = []
        for target in result.targets:
            tables += [target_table(result, target), *measured_tables(target.result.best)]
        return tables

    @cached_property
    def short_tables(self) -> list[Table]:
        """The models that matter to the answer; for each target or model of a set, as in `tables`."""
        result = self.result
        if result.parts:
            tables = [_parts_table(result)]
            if result.baseline.metrics:
                tables.append(short_table(result, title="together"))
            return tables
        if not result.targets:
            return [short_table(result), *measured_tables(result.best)]
        tables = [chosen_table(result, result.choice)] if result.choice and result.choice.models else []
        for target in result.targets:
            if result.choice is None or target.name not in result.choice.models:
                # Trials are numbered for each target.
                tables.append(short_table(of_target(result, target), title=target_title(target), numbered=False))
            tables += measured_tables(target.result.best)
        return tables


def changes_from_source(result: RunResult, model: ModelResult) -> list[tuple[str, str, str, str]]:
    """Each metric of a model: its name, the source's value, the model's, and the change."""
    rows, source = [], result.baseline.metrics
    for name in metrics_of(result):
        if name in model.metrics:
            limits = limits_of(name, result.constraints, source)
            before, after = figure_text(name, source.get(name), 2), figure_text(name, model.metrics[name], 2, limits)
            rows.append((name, before, after, change_of(name, model)))
    return rows


def chosen_table(result: RunResult, chosen: ChosenTarget) -> Table:
    """The source model on the first target, and the best model of each target."""
    rows = [LabelledModel("source", result.baseline), *itertools.starmap(LabelledModel, chosen.models.items())]
    models = [row.model for row in rows]
    columns = [Column("target", [row.label for row in rows]), *_figure_columns(result, models, headlines(result), 1)]
    columns.append(_passes_column(columns, models))
    best = [row.label for row in rows].index(chosen.name) if chosen.name in chosen.models else None
    return table_of(columns, f"the best of each target beside your model on {result.targets[0].name}", best)


def of_target(result: RunResult, target: PartResult) -> RunResult:
    """The result of one of several targets, with the goal of the run."""
    return replace(target.result, objectives=result.objectives, constraints=result.constraints)


def target_title(target: PartResult) -> str:
    """The title of a table of one of several targets."""
    return f"target {target.name}: {target_text(target)}"


def target_text(target: PartResult) -> str:
    """A target in words: `CPUExecutionProvider, 2 threads`."""
    settings = target.target
    threads = settings.get("threads", 1)
    words = [str(settings.get("execution_provider", "")), "threads chosen by the runtime"]
    if isinstance(threads, int) and threads:
        words[1] = plural(threads, "thread")
    if settings.get("python"):
        words.append(f"runtime of {settings['python']}")
    return ", ".join(words)


def target_table(result: RunResult, target: PartResult) -> Table:
    """The table of one of several targets."""
    return model_table(of_target(result, target), title=target_title(target))


def labelled_models(result: RunResult) -> list[LabelledModel]:
    """The models of a run with their labels `source`, `best`, `lossy` and `front`."""
    labelled = []
    for model in result.models:
        label = "front"
        if model.is_source:
            label = "source"
        elif result.best is not None and model.candidate.key == result.best.candidate.key:
            label = "best"
        elif result.best_lossy is not None and model.candidate.key == result.best_lossy.candidate.key:
            label = "lossy"
        labelled.append(LabelledModel(label, model))
    return labelled


def model_table(result: RunResult, title: str = "") -> Table:
    """One row each for the source, the best model and the rest of the front: all metrics, the change of the first."""
    rows = labelled_models(result)
    shared = shared_flags(result)
    columns = [
        Column("model", [row.name for row in rows]),
        *_figure_columns(result, [row.model for row in rows], metrics_of(result), 2),
        Column("passes", [_all_passes(row.model, shared) for row in rows]),
    ]
    return table_of(columns, title or f"run {short(result.run)}: {result.status}", _best_row(result))


def short_table(result: RunResult, title: str = "", *, numbered: bool = True) -> Table:
    """The source, the best model, and the models that are smaller or of higher quality.

    `numbered`: with the numbers of their trials, which `autoopt export` takes.
    """
    rows = chosen_models(result)
    models = [row.model for row in rows]
    columns = [Column("model", [row.label for row in rows])]
    numbers = Column("trial", list(map(_trial_text, models)), right=True)
    if numbered and any(numbers.cells):
        columns.append(numbers)
    measured = set().union(*(model.metrics for model in models))
    figures = _figure_columns(result, models, list(filter(measured.__contains__, headlines(result))), 1)
    if len(models) == 1:
        figures = filter(lambda column: column.right, figures)  # nothing to compare with
    columns += [replace(column, name=column.name.replace("_", " ")) for column in figures]
    if len(models) > 1 and not result.parts:
        columns.append(_passes_column(columns, models))
    return table_of(columns, title, _best_row(result))


def _trial_text(model: ModelResult) -> str:
    return "" if model.trial is None else str(model.trial)


def _best_row(result: RunResult) -> int | None:
    """The row of the best model in a table that the source model begins; None without one."""
    if result.best is None:
        return None
    return int(not result.best.is_source)


def _figure_columns(
    result: RunResult, models: Sequence[ModelResult], metrics: Sequence[str], decimals: int
) -> Iterator[Column]:
    """A column for each metric, and one for the change of the first that some model has a change of."""
    ratios = set().union(*(model.ratios for model in models))
    changed = next(filter(is_ratio_metric, filter(ratios.__contains__, metrics)), None)
    for metric in metrics:
        limits = limits_of(metric, result.constraints, result.baseline.metrics)
        values = [model.metrics.get(metric) for model in models]
        yield Column(COLUMN_TITLES.get(metric, metric), _value_texts(metric, values, limits, decimals), right=True)
        if metric == changed:
            is_pooled = kind(metric) == "latency" and not result.is_interim
            title = f"change, {ALL_MEASUREMENTS}" if is_pooled else "change"
            yield Column(title, [change_of(metric, model) for model in models])


def _value_texts(metric: str, values: Sequence[float | None], limits: Sequence[float], decimals: int) -> list[str]:
    """The values of a metric; shares have a second decimal if they would look equal with one."""
    texts = [figure_text(metric, value, decimals, limits) for value in values]
    if decimals == 1 and len(set(texts)) != len(set(values)):
        return _value_texts(metric, values, limits, 2)
    return texts


def _all_passes(model: ModelResult, shared: Set[str]) -> str:
    """The passes with their settings; a star marks caveats that not all models share."""
    if model.is_source:
        return ""
    steps = steps_text(model.short_chain, model.point)
    if set(model.flags) - shared:
        steps += " *"
    return steps


def _passes_column(columns: Sequence[Column], models: Sequence[ModelResult], of_source: str = "") -> Column:
    """The passes of models in the room that the other columns leave."""
    room = max(WIDTH - sum(column.width + 2 for column in columns), STEPS_WIDTH)
    texts = [of_source if one.is_source else steps_text(one.short_chain, one.point, room) for one in models]
    return Column("passes", texts)


def _parts_table(result: RunResult) -> Table:
    """The chosen models of a set, with their changes when measured by themselves."""
    models = [part.model for part in result.parts]
    changes = ["" if part.model.is_source else ", ".join(gains(part.result, part.model)) for part in result.parts]
    columns = [
        Column("model", [part.name for part in result.parts]),
        Column("time", [percent(part.share) for part in result.parts], right=True),
        Column("by itself", changes),
    ]
    return table_of([*columns, _passes_column(columns, models, of_source=SOURCE)])


def chosen_models(result: RunResult) -> list[LabelledModel]:
    """The source, the best model, the best lossy one, and one model for each way to be better than the best."""
    rows = [LabelledModel("source", result.baseline)]
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
    """The way in which people notice a model to be better than the best one; empty if they do not."""
    size, best_size = model.metrics.get("size"), best.metrics.get("size")
    if size is not None and best_size is not None and size < SMALLER * best_size:
        return "smaller"
    for name in filter(is_quality, headlines(result)):
        metric, value, best_value = known_metric(name), model.metrics.get(name), best.metrics.get(name)
        if metric is None or value is None or best_value is None:
            continue
        looks_better = figure_text(name, value) != figure_text(name, best_value)
        if looks_better and is_better(value, best_value, metric.direction):
            return {"minimize": f"lower {name}", "maximize": f"higher {name}"}[metric.direction]
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
