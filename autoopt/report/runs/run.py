"""The result of a run: a table of the source, the best model and the Pareto front, and what it took."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, TextIO

from autoopt.errors import one_line
from autoopt.metrics import is_ratio_metric
from autoopt.report.elements.table import Column, Table, table_of, write_lines, write_table
from autoopt.report.runs.measurement import measured_lines, measured_tables
from autoopt.report.words.change import ratio_change
from autoopt.report.words.figures import shared_flags
from autoopt.report.words.formatting import (
    ALL_MEASUREMENTS,
    counts_text,
    metric_text,
    percent,
    plural,
    seconds_text,
    short,
)
from autoopt.report.words.limits import figure_text, limits_of
from autoopt.report.words.steps import steps_text
from autoopt.report.words.verdict import verdict, verdict_lines
from autoopt.results import ModelResult, RunResult, TargetResult
from autoopt.results.figures import kind, metrics_of

REUSED = "answered from the store: an identical run has finished, so nothing was executed"
CHANGE = "change"
"""Begins the title of the column with the change from the source in words."""
COLUMN_TITLES = {"latency_p50": "latency", "time_to_first_token": "first token"}


class LabelledModel(NamedTuple):
    """A row of a table of models."""

    label: str
    model: ModelResult


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
    notes = (*result.warnings, *(note for note in result.other_notes if note not in shown_notes))
    for table in run_tables(result):
        write_table(table, stream)
    *lines, answer = summary(replace(result, notes=notes), verbose=verbose)
    write_lines([*lines, *files, "", f"{answer} {next_step}".rstrip()], stream)


def run_tables(result: RunResult) -> list[Table]:
    """The tables of a run, for each of its targets or models if there are several."""
    if result.parts:
        tables = []
        for part in result.parts:
            title = f"model {part.name}: {percent(part.share)} of the time, run {short(part.result.run)}"
            tables.append(run_table(part.result, title=title))
        title = f"together, run {short(result.run)}: {result.status}"
        return [*tables, run_table(result, title=title)] if result.baseline.metrics else tables
    if not result.targets:
        return [run_table(result), *measured_tables(result.best)]
    tables = []
    for target in result.targets:
        tables += [target_table(result, target), *measured_tables(target.result.best)]
    return tables


def target_table(result: RunResult, target: TargetResult) -> Table:
    """The table of one of several targets: its own models, then the best single model if it is another one."""
    own_result = replace(target.result, objectives=result.objectives, constraints=result.constraints)
    single = single_model(result, target)
    extra = [] if single is None else [LabelledModel("single", single)]
    return run_table(own_result, extra, title=f"target {target.name}: {target_text(target)}")


def single_model(result: RunResult, target: TargetResult) -> ModelResult | None:
    """The best single model for all targets, as measured on this one; None if that is the source."""
    if result.best_single is None:
        return None
    single = result.best_single.targets.get(target.name)
    if single is None or single.is_source:
        return None
    return single


def run_table(result: RunResult, extra: Sequence[LabelledModel] = (), title: str = "") -> Table:
    """One row each for the source, the best model and the rest of the front: every metric, and the change of the first.

    `extra` are further models with their labels, shown unless they are among those of the run.
    """
    models = labelled_models(result)
    keys = {model.candidate.key for _, model in models}
    models += [row for row in extra if row.model.candidate.key not in keys]
    shared = shared_flags(result)
    columns = [
        Column("model", [_label(label, model) for label, model in models]),
        *_figure_columns(result, models),
        Column("passes", [_passes(model, shared) for _, model in models]),
    ]
    return table_of(columns, title or f"run {short(result.run)}: {result.status}", best_row(result))


def _figure_columns(result: RunResult, models: Sequence[LabelledModel]) -> Iterator[Column]:
    """A column for each metric, and one for the change of the first that has any."""
    metrics = metrics_of(result)
    changed = _changed_metric(metrics, models)
    for name in metrics:
        limits = limits_of(name, result.constraints, result.baseline.metrics)
        figures = [figure_text(name, model.metrics.get(name), 2, limits) for _, model in models]
        yield Column(COLUMN_TITLES.get(name, name), figures, right=True)
        if name == changed:
            yield Column(change_title(name, result), [change_cell(name, model) for _, model in models])


def change_title(metric: str, result: RunResult) -> str:
    """`change, all measurements`; only `change` for a metric that is measured once, and during a run."""
    if kind(metric) != "latency" or result.is_interim:
        return CHANGE
    return f"{CHANGE}, {ALL_MEASUREMENTS}"


def best_row(result: RunResult) -> int | None:
    """The row of the best model in a table that the source model begins; None without one."""
    if result.best is None:
        return None
    return int(not result.best.is_source)


def change_cell(metric: str, model: ModelResult) -> str:
    """The change of a metric from the source; empty for the source itself, and without a ratio."""
    if model.is_source or metric not in model.ratios:
        return ""
    return ratio_change(metric, model.ratios[metric])


def _changed_metric(metrics: Sequence[str], models: Sequence[LabelledModel]) -> str | None:
    """The first metric that some model has a change of; the others show their values only."""
    for name in metrics:
        if is_ratio_metric(name) and any(name in model.ratios for _, model in models):
            return name
    return None


def _passes(model: ModelResult, shared: Set[str]) -> str:
    """The passes with their settings; a star marks caveats that not all models share."""
    if model.is_source:
        return ""
    star = " *" if set(model.flags) - shared else ""
    return steps_text(model.short_chain, model.point) + star


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


def target_text(target: TargetResult) -> str:
    """A target in words: `CPUExecutionProvider, 2 threads`."""
    settings = target.target
    threads = settings.get("threads", 1)
    words = [str(settings.get("execution_provider", "")), "threads chosen by the runtime"]
    if isinstance(threads, int) and threads:
        words[1] = plural(threads, "thread")
    if settings.get("python"):
        words.append(f"runtime of {settings['python']}")
    return ", ".join(words)


def summary(result: RunResult, *, verbose: bool = False) -> list[str]:
    """The caveats, notes and the answer, a line each; with `verbose`, also the work that was done."""
    lines = [*caveats(result), *(f"note: {one_line(note)}" for note in result.other_notes), trials_line(result)]
    if verbose:
        for name, counts in (("pass runs", result.pass_runs), ("evaluations", result.evaluations)):
            lines.append(f"{name}: {counts.executed} executed, {counts.reused} reused")
    lines.append(time_line(result))
    if result.reused:
        lines.append(REUSED)
    warnings = map(one_line, result.warnings)
    if not result.targets:
        return [*lines, *measured_lines(result.best), *warnings, verdict(result)]
    for target in result.targets:
        lines += [f"target {target.name}: {line}" for line in measured_lines(target.result.best)]
    return [*lines, *warnings, *answers(result)]


def answers(result: RunResult) -> list[str]:
    """The answer, a sentence on each line; of a run over several targets, an answer for each and one for all."""
    if not result.targets:
        return verdict_lines(result)
    lines = [f"target {target.name}: {verdict(target.result)}{_origin(target)}" for target in result.targets]
    return [*lines, single_verdict(result)]


def trials_line(result: RunResult) -> str:
    """`3 trials: 2 ok, 1 refused (stopped at 3 trials)`."""
    if result.stopped:
        return f"{trial_counts(result)} ({result.stopped})"
    return trial_counts(result)


def trial_counts(result: RunResult) -> str:
    """`3 trials: 2 ok, 1 refused`."""
    total, colon, outcomes = counts_text(result.trial_counts).partition(": ")
    return f"{plural(int(total), 'trial')}{colon}{outcomes}"


def time_line(result: RunResult) -> str:
    """`time 41.2 s (baseline 3.0, search 30.1)`."""
    return f"time {seconds_text(result.seconds)}"


def caveats(result: RunResult) -> list[str]:
    """The caveats of all models, each once, with the models that it applies to; those of a set by their names."""
    searches = [(f"target {target.name}: ", "", target.result) for target in result.targets] or [("", "", result)]
    searches += [(f"model {part.name}: ", f" of model {part.name}", part.result) for part in result.parts]
    models_by_flag: dict[str, list[str]] = {}
    lines: list[str] = []
    for prefix, owner, part in searches:
        shared = shared_flags(part)
        lines += [f"{prefix}all candidates: {one_line(flag)}" for flag in sorted(shared)]
        for label, model in labelled_models(part):
            for flag in model.flags:
                if flag not in shared:
                    models_by_flag.setdefault(one_line(flag), []).append(f"{_label(label, model)}{owner}")
    lines += [f"* {', '.join(dict.fromkeys(models))}: {flag}" for flag, models in models_by_flag.items()]
    return lines


def single_verdict(result: RunResult) -> str:
    """The answer for all targets in one sentence."""
    single = result.best_single
    if single is None:
        return "Best single model: none meets the constraints on all targets."
    if single.first.is_source:
        return "Best single model: the source; no candidate was measurably better over all targets."
    value = f"{single.metric} {metric_text(single.metric, single.value.value)}"
    if "ratios" in single.how:
        value = ratio_change(single.metric, single.value)
    text = f"Best single model for all targets: {single.first.short_chain}, {value} ({single.how})"
    parts = []
    for name, model in single.targets.items():
        if single.metric in model.ratios:
            parts.append(f"{name} {ratio_change(single.metric, model.ratios[single.metric])}")
    if parts:
        text += f": {', '.join(parts)}"
    return f"{text}."


def _origin(target: TargetResult) -> str:
    if target.result.better_model is None or target.made_on == target.name:
        return ""
    return f" (found by the search for {target.made_on})"


def _label(label: str, model: ModelResult) -> str:
    if model.is_source or not model.artifact:
        return label
    if model.trial is not None:
        return f"{label}, trial {model.trial}"
    return f"{label} {short(model.artifact)[:8]}"
