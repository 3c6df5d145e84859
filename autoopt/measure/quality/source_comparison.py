"""The fidelity meter: compares a candidate's outputs with the source model's, on data that needs no labels."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autoopt.data.dataset import DataSet
from autoopt.data.decoding.class_axis import Dimension, class_axis
from autoopt.data.fit import InputSpec, output_specs
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue, to_json
from autoopt.measure.constraints import share_resolution
from autoopt.measure.inference.batches import evaluation_data
from autoopt.measure.inference.runner import Item, ModelRunner
from autoopt.measure.quality.agreement import PartAgreement, compare_parts, estimate
from autoopt.measure.quality.fidelity import as_array, compare_output
from autoopt.measure.quality.output_kinds import Part, parts_of
from autoopt.measure.quality.predictions import has_source_outputs, more_outputs_of, outputs_of, same_outputs, subset
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.metrics import AGREEMENT, METRICS, Estimate
from autoopt.model.candidate import digest_json
from autoopt.model.model_file import ModelFile
from autoopt.model.roles import Role, names_with, output_roles
from autoopt.tuning import KINDS

MORE_ITEMS = ((1024, 1.0), (256, 12.0), (128, 12.0), (64, 6.0), (32, 4.0), (16, 16.0), (8, 16.0))
"""Items for models that are fast enough, and the expected time of the candidate in seconds above which fewer are used:
64 items do not tell an agreement of 0.98 from one of 0.94, but a minute for each candidate leaves no time to search."""
DECISIONS = (AGREEMENT, "top1_agreement")
"""Metrics of which a single item may change by 1: the number of items limits what they can show."""


def measure(request: MeasureRequest) -> MeasureReply:
    """Compare each output with the source's.

    `agreement` is the mean over the outputs, `top1_agreement` that of the first output that holds classes; every other
    metric is that of the worst output. `details["outputs"]` holds the metrics by output, `details["kinds"]` what
    each output counts as in `agreement`: classes, boxes, values, ...

    Raises:
        InputError: there is no source to compare with, or it has other outputs.
    """
    if request.source is None:
        raise InputError("fidelity needs the source model")
    data = evaluation_data(request)
    items = _candidate_items(request, data)
    source_items = items
    if not request.is_reference:
        source_items = outputs_of(request.on_default_provider, request.source, subset(request, data, len(items)))
    if len(items[0]) != len(source_items[0]):
        raise InputError(f"the candidate has {len(items[0])} outputs, the source {len(source_items[0])}")
    signature = _signature(request.on_default_provider, request.source)
    source, candidate = _by_output(source_items), _by_output(items)
    agreements = compare_parts(signature.parts(source, subset(request, data, len(items))), candidate, source)
    are_same = same_outputs(items, source_items)
    per_output: dict[str, dict[str, Estimate]] = {name: {} for name in signature.names}
    of_model: dict[str, Estimate] = {}
    kinds: dict[str, JsonValue] = {}
    if AGREEMENT in request.metrics:
        of_model[AGREEMENT] = estimate(agreements, len(items), same=are_same)
        for agreement in agreements:
            for name in map(signature.names.__getitem__, agreement.part.outputs):
                kinds[name] = agreement.kind
                per_output[name][AGREEMENT] = estimate([agreement], len(items), same=are_same)
    for index, name in enumerate(signature.names):
        distances = _distances(request.metrics, candidate[index], source[index], signature.shapes[index])
        per_output[name].update(distances)
    of_model.update(_of_model(request.metrics, list(per_output.values()), agreements))
    metrics = {name: of_model[name] for name in request.metrics if name in of_model}
    shares = [name for name in DECISIONS if name in metrics]
    details: dict[str, JsonValue] = {
        "items": len(items),
        "outputs": to_json(per_output),
        "kinds": kinds,
        "resolutions": dict.fromkeys(shares, share_resolution(len(items))),
    }
    return MeasureReply(metrics, details=details)


def _candidate_items(request: MeasureRequest, data: DataSet) -> list[Item]:
    """Run the candidate on the setting `samples`, or on as many items as its speed allows."""
    if request.settings.samples:
        return outputs_of(request, request.candidate, subset(request, data, request.settings.samples))
    few = subset(request, data, KINDS.fewest_compared)
    # Outputs of the source that are known need no session. Opening it must not count as the time of the items: the
    # source would get fewer than its candidates, and run again with the first of them.
    runner = None
    if not request.is_source or not has_source_outputs(request, len(few)):
        runner = ModelRunner.open(request.candidate, request, timed=False)
    began = time.monotonic()
    items = outputs_of(request, request.candidate, few, runner)
    seconds_per_item = (time.monotonic() - began) / len(items)
    if len(items) == len(data):
        return items
    for (count, most_seconds), (fewer, _) in pairwise((*MORE_ITEMS, (0, 0.0))):
        if fewer >= len(data):
            continue  # it covers the data, too, and says for how long so few items are worth it
        seconds = min(count, len(data)) * seconds_per_item
        if not request.is_reference and not has_source_outputs(request.on_default_provider, min(count, len(data))):
            seconds *= 2  # the source runs them, too
        if seconds <= most_seconds:
            return more_outputs_of(request, request.candidate, data, count, items, runner)
    return items


def _by_output(items: Sequence[Item]) -> list[list[np.ndarray]]:
    """Regroup outputs by item to items by output."""
    by_output: list[list[np.ndarray]] = [[] for _ in items[0]]
    for item in items:
        for index, values in enumerate(by_output):
            values.append(as_array(item[index]))
    return by_output


@dataclass(frozen=True)
class _Signature:
    """The outputs of the source model."""

    names: tuple[str, ...]
    roles: tuple[Role, ...]
    shapes: tuple[Sequence[Dimension], ...]
    states: frozenset[int]
    """Indices of the outputs that are recurrent state."""
    mask: str
    """The input that tells tokens from padding; empty without one."""

    def parts(self, source: Sequence[Sequence[np.ndarray]], data: DataSet) -> list[Part]:
        """Tell what the outputs on the data stand for."""
        masks: Sequence[np.ndarray] = data.uneven.get(self.mask, ())
        column = data.columns.get(self.mask)
        if column is not None and column.ndim >= 2:
            masks = list(column)
        return parts_of(source, self.roles, self.shapes, self.states, masks)


_signatures: dict[str, _Signature] = {}
"""The signature of the last source model: opening a session of it for each candidate takes long if it is large."""


def _signature(request: MeasureRequest, source: ModelFile) -> _Signature:
    key = digest_json([source.digest, request.states, request.settings.roles])
    if key not in _signatures:
        runner = ModelRunner.open(source, request, packs_weights=False)
        outputs = output_specs(runner.session)
        roles = output_roles(outputs, runner.inputs, runner.roles)
        shapes = tuple(output.shape for output in runner.session.get_outputs())
        mask = next(iter(names_with("token mask", runner.roles)), "")
        _signatures.clear()
        _signatures[key] = _Signature(
            runner.outputs, tuple(roles.values()), shapes, frozenset(_states(runner, outputs, roles)), mask
        )
    return _signatures[key]


def _states(runner: ModelRunner, outputs: Sequence[InputSpec], roles: Mapping[str, Role]) -> set[int]:
    """Find the outputs that are recurrent state: fed back, a cache, or further ones of the shape of an input."""
    input_shapes = [spec.shape for spec in runner.inputs if spec.shape and len(spec.shape) >= 2]
    states = set()
    for index, output in enumerate(outputs):
        is_shaped_like_input = index > 0 and any(_may_feed(output.dims, shape) for shape in input_shapes)
        if is_shaped_like_input or output.name in runner.state or roles[output.name].feeds:
            states.add(index)
    return states


def _may_feed(output: Sequence[Dimension], shape: Sequence[Dimension]) -> bool:
    """True if an output has the shape of an input, up to dimensions that exporters left open in the output."""
    if list(output) == list(shape):
        return True
    if len(output) != len(shape) or not any(isinstance(size, int) and size > 1 for size in output):
        return False
    return all(size == wanted for size, wanted in zip(output, shape, strict=True) if isinstance(size, int))


def _distances(
    metrics: Sequence[str], candidate: Sequence[np.ndarray], source: Sequence[np.ndarray], shape: Sequence[Dimension]
) -> Iterator[tuple[str, Estimate]]:
    """Yield the distances of one output."""
    axis = class_axis(source, shape)
    for metric in metrics:
        if metric == AGREEMENT:
            continue
        distance = compare_output(metric, candidate, source, -1 if axis is None else axis)
        if distance is not None:
            yield metric, distance


def _of_model(
    metrics: Sequence[str], per_output: Sequence[Mapping[str, Estimate]], agreements: Sequence[PartAgreement]
) -> Iterator[tuple[str, Estimate]]:
    """Yield the distances of the whole model."""
    deciding = [a.part.outputs[0] for a in agreements if a.part.kind in ("ids", "classes", "sequence")]
    for metric in metrics:
        estimates = [values[metric] for values in per_output if metric in values]
        if metric == AGREEMENT or not estimates:
            continue
        if metric == "top1_agreement":
            yield metric, per_output[min(deciding, default=0)][metric]
        elif METRICS[metric].direction == "maximize":
            yield metric, min(estimates, key=lambda each: each.value)
        else:
            yield metric, max(estimates, key=lambda each: each.value)
