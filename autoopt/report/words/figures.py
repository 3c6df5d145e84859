"""Decide which metrics are shown, and how: the run's own objectives and constraints come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoopt.metrics import (
    FIRST_TOKEN,
    MEDIAN_LATENCY,
    TOKEN_RATE,
    Direction,
    Estimate,
    Kind,
    Objective,
    headline_metrics,
    is_ratio_metric,
    known_metric,
)
from autoopt.report.words.formatting import metric_text, params_text, ratio_text
from autoopt.results import ModelResult, RunResult, Trial, TrialResult, values_of
from autoopt.space import Point

DEFAULT_OBJECTIVE = Objective(MEDIAN_LATENCY, "minimize")
QUALITY_KINDS: tuple[Kind, ...] = ("task", "fidelity", "custom")


def kind(metric: str) -> Kind:
    """The kind of a metric by its name; unknown names are `custom`."""
    built_in = known_metric(metric)
    if built_in is None:
        return "custom"
    return built_in.kind


def is_quality(metric: str) -> bool:
    """True for metrics of the outputs: of a task, of the fidelity to the source, or a user's own."""
    return kind(metric) in QUALITY_KINDS


def first_objective(result: RunResult) -> Objective:
    """The objective that decides first."""
    return next(iter(result.objectives), DEFAULT_OBJECTIVE)


def metrics_of(result: RunResult) -> tuple[str, ...]:
    """The metrics that a report shows: headlines, then a latency, size and quality, if measured.

    A latency is shown even if no objective asks for it, and the time of a prompt next to tokens per second.
    """
    measured = dict.fromkeys(name for model in result.models for name in model.metrics)
    headlines = headline_metrics(result.objectives, result.constraints)
    others = [name for name in measured if kind(name) not in ("latency", "memory")]
    others.sort(key=is_quality)
    if "latency" not in map(kind, headlines):
        others.insert(0, MEDIAN_LATENCY)
    if TOKEN_RATE in headlines:
        others.insert(0, FIRST_TOKEN)
    return tuple(name for name in dict.fromkeys((*headlines, *others)) if name in measured)


def trial_figures(result: TrialResult, headlines: Iterable[str]) -> list[str]:
    """The figures of a trial: its headlines, then the size and the first quality metric."""
    quality = list(filter(is_quality, result.metrics))[:1]
    return figures(dict.fromkeys((*headlines, "size", *quality)), values_of(result.metrics), result.ratios)


def trial_title(trial: Trial) -> str:
    """A trial's number, chain and parameters: `trial 3: fold -> static [static: per_channel=true]`."""
    return f"trial {trial.number}: {_with_params(trial.short_chain, trial.result.point)}"


def chain_text(model: ModelResult) -> str:
    """`simplify -> static [static: per_channel=true] *`: the searched parameters, and a star if there are caveats.

    Passes that changed nothing are left out.
    """
    text = _with_params(model.short_chain, model.point)
    if model.flags:
        text += " *"
    return text


def shared_flags(result: RunResult) -> frozenset[str]:
    """The caveats that all of several candidates have."""
    candidates = [set(model.flags) for model in result.models if not model.is_source]
    if len(candidates) < 2:
        return frozenset()
    return frozenset(set.intersection(*candidates))


def _with_params(chain: str, point: Point) -> str:
    shown = chain.split(" -> ")
    params = params_text({node: values for node, values in point.items() if node in shown})
    return f"{chain} [{params}]" if params else chain


def figures(metrics: Iterable[str], values: Mapping[str, float], ratios: Mapping[str, Estimate]) -> list[str]:
    """Figures with their names: `latency_p50 0.301x (0.290..0.312)`, `accuracy 0.9950`, without unmeasured ones."""
    texts = []
    for name in metrics:
        text = figure(name, values, ratios)
        if text:
            texts.append(f"{name} {text}")
    return texts


def trial_estimate(result: TrialResult, metric: str) -> Estimate | None:
    """The ratio of a latency, size or memory, the value of any other metric; None if it was not measured."""
    if is_ratio_metric(metric):
        return result.ratios.get(metric)
    return result.metrics.get(metric)


def model_estimate(model: ModelResult, metric: str) -> Estimate | None:
    """The same for a model."""
    if is_ratio_metric(metric):
        return model.ratios.get(metric)
    if metric in model.intervals:
        return model.intervals[metric]
    if metric in model.metrics:
        return Estimate.exact(model.metrics[metric])
    return None


def is_better(value: float, best: float, goal: Direction) -> bool:
    """True if a value is better than the best one so far."""
    if goal == "maximize":
        return value > best
    return value < best


def figure(metric: str, values: Mapping[str, float], ratios: Mapping[str, Estimate]) -> str:
    """The ratio of a latency, size or memory, the value of any other metric; empty if it was not measured."""
    if is_ratio_metric(metric) and metric in ratios:
        return ratio_text(ratios[metric])
    if metric in values:
        return metric_text(metric, values[metric])
    return ""
