"""The meters of task metrics and custom metrics: a candidate and its source on the same items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from autoopt.data.dataset import DataSet, plain_labels
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue, to_json
from autoopt.measure.constraints import Observation, judge, share_resolution
from autoopt.measure.inference import Item, evaluation_data
from autoopt.measure.quality import task as task_metrics
from autoopt.measure.quality.classification import class_names, fallen_class, numbered
from autoopt.measure.quality.predictions import outputs_of, predictions_of, same_outputs, subset
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.metrics import Direction, Estimate, get_metric
from autoopt.model.model_file import ModelFile
from autoopt.script import load_script
from autoopt.tuning import KINDS

BY_PLACE = {"accuracy", "balanced_accuracy", "f1", "frame_f1", "miou"}
"""Metrics of one class for each item or place, of which one may be lost."""
LARGEST = 1e308
"""Stands for a metric that is not a number or infinite, which JSON does not have."""


def task(request: MeasureRequest) -> MeasureReply:
    """Measure task metrics of both models; `details["drops"]` holds the paired interval of the drop.

    With the setting `sequential`, growing subsets are used until every constraint in the setting `constraints` is
    decided, or the data end.

    Raises:
        InputError: there are no labels, or the outputs do not fit them.
    """
    data = evaluation_data(request) if request.data is not None else None
    if data is None or data.labels is None:
        raise InputError("task metrics need labelled data", remedy="give data with labels")
    data = replace(data, labels=plain_labels(data.labels))
    names = class_names(data)
    sizes, size = [], KINDS.first_subset
    while request.settings.sequential and size < len(data):
        sizes.append(size)
        size *= 2
    sizes.append(len(data))
    for size in sizes:
        reply = _measure_task(request, subset(request, data, size), len(data), names)
        if _is_decided(request, reply, looks=len(sizes)):
            break
    return reply


def _measure_task(request: MeasureRequest, data: DataSet, total: int, names: np.ndarray) -> MeasureReply:
    items = outputs_of(request, request.candidate, data)
    outputs = predictions_of(request, request.candidate, items)
    labels = numbered(np.asarray(data.labels), names, outputs)
    metrics = _task_metrics(request.metrics, outputs, labels)
    details: dict[str, JsonValue] = {"items": len(data), "of": total}
    if request.source is None:
        return MeasureReply(metrics, details=details)
    try:
        source_outputs, are_same = _source_predictions(request, request.source, data, items)
    except Exception as error:  # The runtime refuses the source: the candidate is measured without comparison.
        return MeasureReply(metrics, details={**details, "source_refused": f"{type(error).__name__}: {error}"})
    source_metrics = _task_metrics(request.metrics, source_outputs, labels)
    drops = dict.fromkeys(request.metrics, Estimate.exact(0.0))
    if not request.is_reference:
        for name in request.metrics:
            drop = _finite(task_metrics.drop(name, outputs, source_outputs, labels), "minimize")
            drops[name] = Estimate.exact(drop.value) if are_same else drop
    shares = [name for name in request.metrics if get_metric(name).unit == "fraction"]
    details["resolutions"] = dict.fromkeys(shares, share_resolution(len(data)))
    details |= _comparison_details(request, drops, are_same)
    if not are_same and not BY_PLACE.isdisjoint(request.metrics):
        details |= _fallen_details(outputs, source_outputs, labels, names)
    return MeasureReply(metrics, source_metrics, _paired_ratios(drops, source_metrics), details=details)


def _fallen_details(
    outputs: Sequence[object], source_outputs: Sequence[object], labels: np.ndarray, names: np.ndarray
) -> dict[str, JsonValue]:
    """The class whose recall fell most; empty if none did, or if only the metric can read the outputs."""
    try:
        fallen = fallen_class(outputs, source_outputs, labels, names)
    except InputError:
        return {}
    return {} if fallen is None else {"fallen_class": to_json(fallen)}


def _source_predictions(
    request: MeasureRequest, source: ModelFile, data: DataSet, items: Sequence[Item]
) -> tuple[list[object], bool]:
    """The predictions of the source, and True if its outputs are the same as `items`, the candidate's."""
    source_items = items if request.is_reference else outputs_of(request.on_default_provider, source, data)
    return predictions_of(request, source, source_items), same_outputs(items, source_items)


def _comparison_details(request: MeasureRequest, drops: Mapping[str, Estimate], are_same: bool) -> dict[str, JsonValue]:
    details: dict[str, JsonValue] = {"drops": to_json(drops)}
    if are_same and not request.is_reference:
        details["identical_outputs"] = True
    return details


def _paired_ratios(drops: Mapping[str, Estimate], sources: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Compute candidate / source from paired drops; the source's value counts as known and must be positive."""
    ratios: dict[str, Estimate] = {}
    for name, drop in drops.items():
        source = sources[name].value
        if source <= 0:
            continue
        value, low, high = 1 + drop.value / source, 1 + drop.low / source, 1 + drop.high / source
        if get_metric(name).direction == "maximize":
            value, low, high = 1 - drop.value / source, 1 - drop.high / source, 1 - drop.low / source
        ratios[name] = Estimate(max(0.0, value), max(0.0, low), max(0.0, high))
    return ratios


def _task_metrics(names: Sequence[str], outputs: Sequence[object], labels: np.ndarray) -> dict[str, Estimate]:
    return {name: _task_metric(name, outputs, labels) for name in names}


def _task_metric(name: str, outputs: Sequence[object], labels: np.ndarray) -> Estimate:
    try:
        return _finite(task_metrics.measure(name, outputs, labels), get_metric(name).direction)
    except InputError as error:
        raise InputError(f"{name}: {error.what}", where=error.where, remedy=error.remedy) from error
    except (ValueError, IndexError, TypeError, AttributeError) as error:  # numpy's errors on arrays that do not fit
        shapes = ", ".join(map(_shape_text, outputs))
        raise InputError(
            f"{name} does not fit outputs of {shapes} and labels of {_shape_text(labels)} ({error})",
            remedy="choose the output with task_output or post_process",
        ) from error


def _shape_text(value: object) -> str:
    if isinstance(value, np.ndarray):
        kind = "texts" if value.dtype.kind in "OU" else str(value.dtype)
        return f"{kind} {list(value.shape)}"
    assert isinstance(value, list)
    return f"{len(value)} items of different shapes"


def custom(request: MeasureRequest) -> MeasureReply:
    """Measure the user script's metrics of both models, in pairs if they have one value per item.

    Raises:
        InputError: there is no script or no such metric, or the metric returned no number.
    """
    if request.user_script is None:
        raise InputError("custom metrics need the user script that defines them")
    load_script(request.user_script)
    data = evaluation_data(request)
    items = outputs_of(request, request.candidate, data)
    outputs = predictions_of(request, request.candidate, items)
    source_outputs: list[object] | None = None
    are_same = False
    if request.source is not None:
        source_outputs, are_same = _source_predictions(request, request.source, data, items)
    metrics: dict[str, Estimate] = {}
    source_metrics: dict[str, Estimate] = {}
    drops: dict[str, Estimate] = {}
    for name in request.metrics:
        values = task_metrics.script_values(name, outputs, data.labels)
        direction = task_metrics.registered()[name].direction
        metrics[name] = _finite(task_metrics.script_estimate(values), direction)
        if source_outputs is None:
            continue
        source_values = task_metrics.script_values(name, source_outputs, data.labels)
        source_metrics[name] = _finite(task_metrics.script_estimate(source_values), direction)
        drop = task_metrics.script_drop(direction, values, source_values)
        if drop is not None and are_same:
            drop = Estimate.exact(drop.value)
        if drop is not None:
            drops[name] = drop
    details = {"items": len(data), **_comparison_details(request, drops, are_same)}
    return MeasureReply(metrics, source_metrics, details=details)


def _finite(estimate: Estimate, direction: Direction) -> Estimate:
    """Replace an estimate that is not finite by the worst possible one."""
    if all(np.isfinite([estimate.value, estimate.low, estimate.high])):
        return estimate
    return Estimate.exact(-LARGEST if direction == "maximize" else LARGEST)


def _is_decided(request: MeasureRequest, reply: MeasureReply, looks: int) -> bool:
    """True if every constraint is certain.

    Several looks at growing data are wrong several times as often, so the intervals are stretched to share the 5 %
    among all looks (Bonferroni).
    """
    constraints = [c for c in request.settings.constraints if c.metric in reply.metrics]
    factor = NormalDist().inv_cdf(1 - 0.025 / looks) / NormalDist().inv_cdf(0.975)
    metrics = _stretched(reply.metrics, factor)
    source_metrics = _stretched(reply.source_metrics, factor)
    ratios = _stretched(reply.with_unpaired_ratios().ratios, factor)
    drops = _stretched(reply.drops, factor)
    for constraint in constraints:
        name = constraint.metric
        observation = Observation(metrics[name], source_metrics.get(name), ratios.get(name), drops.get(name))
        verdict = judge(constraint, get_metric(name), observation)
        if verdict.status == "uncertain":
            return False
    return bool(constraints)


def _stretched(estimates: Mapping[str, Estimate], factor: float) -> dict[str, Estimate]:
    stretched: dict[str, Estimate] = {}
    for name, estimate in estimates.items():
        value = estimate.value
        low, high = value - factor * (value - estimate.low), value + factor * (estimate.high - value)
        stretched[name] = Estimate(value, low, high)
    return stretched
