"""Decide which metrics are shown, and how: the run's own objectives and constraints come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoopt.metrics import Estimate, is_ratio_metric
from autoopt.report.words.formatting import metric_text, params_text, ratio_text
from autoopt.results import ModelResult, RunResult, Trial, values_of
from autoopt.results.figures import is_quality
from autoopt.space import Point


def trial_figures(result: Trial, headlines: Iterable[str]) -> list[str]:
    """The figures of a trial: its headlines, then the size and the first quality metric."""
    quality = list(filter(is_quality, result.metrics))[:1]
    return figures(dict.fromkeys((*headlines, "size", *quality)), values_of(result.metrics), result.ratios)


def trial_title(trial: Trial) -> str:
    """A trial's number, chain and parameters: `trial 3: fold -> static [static: per_channel=true]`."""
    return f"trial {trial.number}: {_with_params(trial.short_chain, trial.point)}"


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


def figure(metric: str, values: Mapping[str, float], ratios: Mapping[str, Estimate]) -> str:
    """The ratio of a latency, size or memory, the value of any other metric; empty if it was not measured."""
    if is_ratio_metric(metric) and metric in ratios:
        return ratio_text(ratios[metric])
    if metric in values:
        return metric_text(metric, values[metric])
    return ""
