"""The fidelity meter: a candidate's outputs beside the source model's, on data that needs no labels.

`compare_output` computes the distances of one output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Final, TypeAlias

import numpy as np

from autoopt.data.dataset import DataSet
from autoopt.data.fit import InputSpec, output_specs
from autoopt.data.scores import Dimension, class_axis
from autoopt.errors import InputError
from autoopt.json_codec import JsonValue, to_json
from autoopt.measure.constraints import share_resolution
from autoopt.measure.inference import Item, ModelRunner, evaluation_data, plain
from autoopt.measure.intervals.items import bootstrap, mean_interval, wilson
from autoopt.measure.quality.agreement import PartAgreement, compare_parts, estimate
from autoopt.measure.quality.output_kinds import Part, parts_of
from autoopt.measure.quality.predictions import has_source_outputs, more_outputs_of, outputs_of, same_outputs, subset
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.metrics import AGREEMENT, METRICS, WORST, Estimate
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
        for name, agreement in signature.named(agreements):
            kinds[name] = agreement.kind
            per_output[name][AGREEMENT] = estimate([agreement], len(items), same=are_same)
    for name, ours, theirs, shape in zip(signature.names, candidate, source, signature.shapes, strict=True):
        per_output[name].update(_distances(request.metrics, ours, theirs, shape))
    of_model.update(_of_model(request.metrics, list(per_output.values()), agreements))
    metrics = {name: of_model[name] for name in request.metrics if name in of_model}
    shares = list(filter(metrics.__contains__, DECISIONS))
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

    def named(self, agreements: Sequence[PartAgreement]) -> Iterator[tuple[str, PartAgreement]]:
        """Yield the outputs of each part of the outputs."""
        for agreement in agreements:
            for index in agreement.part.outputs:
                yield self.names[index], agreement


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


Pairs: TypeAlias = "list[tuple[np.ndarray, np.ndarray]]"
"""Candidate's and source's output, item by item."""
NUMBERS = "fiub"
"""numpy's kinds of numbers: floats, signed and unsigned integers, booleans."""


def as_array(value: object) -> np.ndarray:
    """Convert an output to one array: a sequence of tensors to all its elements, other values to text."""
    value = plain(value)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list) and value and all(isinstance(tensor, np.ndarray) for tensor in value):
        return np.concatenate([tensor.ravel() for tensor in value])
    return np.array(str(value))


def compare_output(
    metric: str, candidate: Sequence[object], source: Sequence[object], axis: int = -1
) -> Estimate | None:
    """Compute a fidelity metric of one output over its items; None if it has no meaning for such an output.

    Texts and other values that are not numbers are compared only by `top1_agreement`. Different shapes count as the
    largest possible distance. `axis` is that of the classes, for `top1_agreement` and `kl`.
    """
    pairs: Pairs = list(zip(map(np.asarray, candidate), map(np.asarray, source), strict=True))
    if not all(s.dtype.kind in NUMBERS for _, s in pairs):
        same = [float(np.array_equal(*pair)) for pair in pairs]
        return _agreement(same) if metric == "top1_agreement" else None
    if not all(starmap(_are_alike, pairs)):
        return Estimate.exact(0.0 if METRICS[metric].direction == "maximize" else WORST)
    if metric in ALONG_CLASSES:
        return _along_classes(metric, pairs, axis)
    pairs = list(starmap(_without_blanks, pairs))
    if metric == "relative_l2":
        return _relative_l2(pairs)
    values = list(starmap(PER_ITEM[metric], pairs))
    return Estimate.exact(max(values)) if metric == "max_abs_error" else mean_interval(values)


def _are_alike(candidate: np.ndarray, source: np.ndarray) -> bool:
    return candidate.shape == source.shape and candidate.dtype.kind in NUMBERS


def _along_classes(metric: str, pairs: Pairs, axis: int) -> Estimate | None:
    """Compute a metric that compares item by item along the axis of the classes; None if there is no such axis."""
    if metric == "kl" and not all(s.ndim and s.shape[axis] != 1 for _, s in pairs):
        return None
    shares = [ALONG_CLASSES[metric](_classes_last(c, axis), _classes_last(s, axis)) for c, s in pairs]
    return _agreement(shares) if metric == "top1_agreement" else mean_interval(shares)


def _without_blanks(candidate: np.ndarray, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave out the places at which both have the same value that is not finite: NaN often stands for none."""
    if candidate.dtype.kind != "f" or source.dtype.kind != "f":
        return candidate, source
    is_blank = ~np.isfinite(source) & ((candidate == source) | (np.isnan(candidate) & np.isnan(source)))
    return candidate[~is_blank], source[~is_blank]


def _classes_last(array: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.moveaxis(array, axis, -1)) if array.ndim else array


def _agreement(shares: Sequence[float]) -> Estimate:
    if all(share in (0.0, 1.0) for share in shares):
        return wilson(sum(shares), len(shares))
    return mean_interval(shares)


def _relative_l2(pairs: Pairs) -> Estimate:
    rows = []
    for c, s in pairs:
        candidate, source = _flat(c), _flat(s)
        rows.append([np.sum((candidate - source) ** 2), np.sum(source**2)])
    squares = np.array(rows)
    if not np.all(np.isfinite(squares)):
        return Estimate.exact(WORST)

    def over(indices: np.ndarray) -> float:
        error, norm = squares[indices].sum(axis=0)
        if norm > 0:
            return float(np.sqrt(error / norm))
        return 0.0 if error == 0 else WORST

    return bootstrap(over, len(squares))


def same_class(candidate: np.ndarray, source: np.ndarray) -> float:
    """Compute the share of positions with the same class: the highest score along the last axis, or equal ids.

    Single floats agree on the same side of a half (probabilities) or of zero (logits).
    """
    if source.dtype.kind in "iub":
        return float(np.mean(candidate == source)) if source.size else 1.0
    if source.ndim == 0 or source.shape[-1] == 1:
        threshold = 0.5 if np.all((source >= 0) & (source <= 1)) else 0.0
        return float(np.mean((candidate >= threshold) == (source >= threshold)))
    is_finite = np.all(np.isfinite(candidate), axis=-1)
    return float(np.mean((candidate.argmax(-1) == source.argmax(-1)) & is_finite))


def cosine(candidate: np.ndarray, source: np.ndarray) -> float:
    """Compute the cosine of the angle between two arrays, taken as vectors.

    It is 1 if both are zero, and 0 if only one is, or if they are not finite in different places.
    """
    candidate, source = _flat(candidate), _flat(source)
    if not np.all(np.isfinite(candidate)) or not np.all(np.isfinite(source)):
        return float(np.array_equal(candidate, source, equal_nan=True))
    candidate_norm, source_norm = float(np.linalg.norm(candidate)), float(np.linalg.norm(source))
    if candidate_norm == 0.0 or source_norm == 0.0:
        return float(candidate_norm == source_norm)
    return float(np.clip(np.dot(candidate / candidate_norm, source / source_norm), -1.0, 1.0))


def largest_error(candidate: np.ndarray, source: np.ndarray) -> float:
    """Compute the largest absolute difference; NaN in the same places counts as equal."""
    candidate, source = _flat(candidate), _flat(source)
    if np.array_equal(candidate, source, equal_nan=True):
        return 0.0
    error = float(np.max(np.abs(candidate - source), initial=0.0))
    return error if np.isfinite(error) else WORST


def kl(candidate: np.ndarray, source: np.ndarray) -> float:
    """Compute the Kullback-Leibler divergence of the candidate's distribution from the source's, in nats.

    The result is the mean over the vectors of the last axis. Softmax turns scores into distributions.
    """
    p, q = _distribution(source), _distribution(candidate)
    if not np.all(np.isfinite(q)):
        return WORST
    return float(np.mean(np.sum(p * (np.log(np.maximum(p, 1e-12)) - np.log(np.maximum(q, 1e-12))), axis=-1)))


def _distribution(scores: np.ndarray) -> np.ndarray:
    values = scores.astype(np.float64)
    if np.all(values >= 0) and np.allclose(values.sum(-1), 1.0, atol=1e-2):
        return np.asarray(values / values.sum(-1, keepdims=True))
    exponentials = np.exp(values - values.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def _flat(array: np.ndarray) -> np.ndarray:
    return np.asarray(array.astype(np.float64).ravel())


PER_ITEM: Final[Mapping[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "cosine": cosine,
    "max_abs_error": largest_error,
}
"""Metrics that compare item by item; `relative_l2` relates the errors of all items to their norm."""
ALONG_CLASSES: Final[Mapping[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "top1_agreement": same_class,
    "kl": kl,
}
"""Metrics that compare item by item along the last axis, that of the classes."""
