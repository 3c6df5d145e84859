"""The result of a run: a table of the source, the best model and the Pareto front, and what it took."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TextIO

from autoopt.errors import one_line
from autoopt.metrics import WARM_LATENCIES, Estimate, is_ratio_metric
from autoopt.report.figures import metrics_of, model_figures
from autoopt.report.formatting import counts_text, metric_text, params_text, plural, ratio_text, seconds_text, short
from autoopt.report.measurement import measured_lines, measured_tables
from autoopt.report.table import Table, write_lines, write_table
from autoopt.results import ModelResult, RunResult, TargetResult

SURELY_FASTER = 0.95
"""Upper bound of a latency ratio below which the verdict names a speed-up."""


def write_run(result: RunResult, stream: TextIO, *, verbose: bool = False) -> None:
    """Write the whole result for people."""
    for table in run_tables(result):
        write_table(table, stream)
    write_lines(summary(result, verbose=verbose), stream)


def run_tables(result: RunResult, *, outputs: bool = False) -> list[Table]:
    """The tables of a run, for each of its targets if there are several."""
    if not result.targets:
        return [run_table(result), *measured_tables(result.best, outputs=outputs)]
    tables = []
    for target in result.targets:
        tables += [target_table(result, target), *measured_tables(target.result.best, outputs=outputs)]
    return tables


def target_table(result: RunResult, target: TargetResult) -> Table:
    """The table of one of several targets: its own models, then the best single model if it is another one."""
    own = replace(target.result, objectives=result.objectives, constraints=result.constraints)
    extra = []
    if result.best_single is not None:
        single = result.best_single.targets.get(target.name)
        if single is not None and not single.is_source:
            extra.append(("single", single))
    return run_table(own, extra, title=f"target {target.name}: {target_text(target)}")


def run_table(result: RunResult, extra: Sequence[tuple[str, ModelResult]] = (), title: str = "") -> Table:
    """One row each for the source, the best model and the rest of the front; every metric, and its ratio if it has one.

    Args:
        result: The result of the run.
        extra: Further models with their labels, shown unless they are among those of the run.
        title: Title of the table; the run's id and status by default.
    """
    models = labelled_models(result)
    keys = {model.candidate.key for _, model in models}
    models += [(label, model) for label, model in extra if model.candidate.key not in keys]
    metrics = metrics_of(result)
    ratios = _ratio_metrics(models)
    columns = ["model"]
    for name in metrics:
        columns.append(name)
        if name in ratios:
            columns.append("ratio")
    best_row = None
    if result.best is not None:
        best_row = int(not result.best.is_source)  # the source model stands first
    return Table(
        columns=(*columns, "chain and its parameters"),
        rows=tuple(_row(label, model, metrics, ratios) for label, model in models),
        title=title or f"run {short(result.run)}: {result.status}",
        right=frozenset(range(1, len(columns))),
        strong=best_row,
    )


def _ratio_metrics(models: Sequence[tuple[str, ModelResult]]) -> set[str]:
    """The metrics that are shown with their ratio to the source model."""
    names: set[str] = set()
    for _, model in models:
        if not model.is_source:
            names.update(filter(is_ratio_metric, model.ratios))
    return names


def _row(label: str, model: ModelResult, metrics: Sequence[str], ratios: Set[str]) -> tuple[str, ...]:
    cells = [_label(label, model)]
    for name in metrics:
        value, ratio = "-", "-"
        if name in model.metrics:
            value = metric_text(name, model.metrics[name])
        if model.is_source:
            ratio = ratio_text(Estimate.exact(1.0))
        elif name in model.ratios:
            ratio = ratio_text(model.ratios[name])
        cells.append(value)
        if name in ratios:
            cells.append(ratio)
    return (*cells, chain_text(model))


def labelled_models(result: RunResult) -> list[tuple[str, ModelResult]]:
    """The models of a run with their labels `source`, `best` and `front`."""
    labelled = []
    for model in result.models:
        label = "front"
        if model.is_source:
            label = "source"
        elif result.best is not None and model.candidate.key == result.best.candidate.key:
            label = "best"
        labelled.append((label, model))
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


def chain_text(model: ModelResult) -> str:
    """`simplify -> static [static: per_channel=true] *`: the searched parameters, and a star if there are caveats."""
    text, params = model.chain, params_text(model.point)
    if params:
        text += f" [{params}]"
    if model.flags:
        text += " *"
    return text


def summary(result: RunResult, *, verbose: bool = False) -> list[str]:
    """The caveats, notes and the answer, a line each; with `verbose`, also the work that was done."""
    lines = [*_caveats(result), *(f"note: {one_line(note)}" for note in result.notes), _trials_line(result)]
    if verbose:
        for name, counts in (("pass runs", result.pass_runs), ("evaluations", result.evaluations)):
            lines.append(f"{name}: {counts.executed} executed, {counts.reused} reused")
    lines.append(f"time {seconds_text(result.seconds)}")
    if result.reused:
        lines.append("answered from the store: an identical run has finished, so nothing was executed")
    if not result.targets:
        return [*lines, *measured_lines(result.best), verdict(result)]
    for target in result.targets:
        target_lines = [*measured_lines(target.result.best), verdict(target.result) + _origin(target)]
        lines += [f"target {target.name}: {line}" for line in target_lines]
    return [*lines, single_verdict(result)]


def _trials_line(result: RunResult) -> str:
    """`3 trials: 2 ok, 1 refused (stopped at 3 trials)`."""
    total, colon, outcomes = counts_text(result.trials).partition(": ")
    text = f"{plural(int(total), 'trial')}{colon}{outcomes}"
    if result.stopped:
        text += f" ({result.stopped})"
    return text


def _caveats(result: RunResult) -> list[str]:
    """The caveats of all models, each once, with the models that it applies to."""
    models_by_flag: dict[str, list[str]] = {}
    for part in [target.result for target in result.targets] or [result]:
        for label, model in labelled_models(part):
            for flag in model.flags:
                models_by_flag.setdefault(one_line(flag), []).append(_label(label, model))
    return [f"* {', '.join(dict.fromkeys(models))}: {flag}" for flag, models in models_by_flag.items()]


def verdict(result: RunResult) -> str:
    """The answer in one sentence."""
    best = result.best
    if best is None:
        return "no model meets the constraints"
    if best.is_source:
        return "no candidate was measurably better; keeping your model"
    metrics = [name for name in metrics_of(result) if is_ratio_metric(name) and name in best.ratios]
    parts = [f"best: {best.chain}", *model_figures(best, metrics)]
    latency = next((name for name in metrics if name in WARM_LATENCIES), None)
    if latency is not None and 0 < best.ratios[latency].high < SURELY_FASTER:
        parts.append(f"{1 / best.ratios[latency].value:.1f} times as fast")
    return ", ".join(parts)


def single_verdict(result: RunResult) -> str:
    """The answer for all targets in one sentence."""
    single = result.best_single
    if single is None:
        return "best single model: none meets the constraints on all targets"
    if single.first.is_source:
        return "best single model: the source; no candidate was measurably better over all targets"
    value = metric_text(single.metric, single.value.value)
    if "ratios" in single.how:
        value = ratio_text(single.value)
    parts = [f"best single model: {single.first.chain}", f"{single.metric} {value} ({single.how})"]
    for name, model in single.targets.items():
        if single.metric in model.ratios:
            parts.append(f"{name} {ratio_text(model.ratios[single.metric])}")
    return ", ".join(parts)


def _origin(target: TargetResult) -> str:
    best = target.result.best
    if best is None or best.is_source or target.made_on == target.name:
        return ""
    return f" (found by the search for {target.made_on})"


def _label(label: str, model: ModelResult) -> str:
    if model.is_source or not model.artifact:
        return label
    return f"{label} {short(model.artifact)[:8]}"
