"""Signs that the source model and its data do not belong together: chance accuracy, constant or NaN outputs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from autoopt.data.dataset import Array, DataSet, plain_labels
from autoopt.data.opening import loader_of
from autoopt.data.reading import PREPROCESSED
from autoopt.errors import InputError
from autoopt.measure.inference import Item, ModelRunner, evaluation_data
from autoopt.measure.quality.classification import class_names, numbered
from autoopt.measure.quality.predictions import predictions_of, subset
from autoopt.measure.quality.vectors import r2
from autoopt.measure.request import MeasureRequest
from autoopt.model import io
from autoopt.model.model_file import ModelFile, size_of
from autoopt.model.random_nodes import random_nodes
from autoopt.model.roles import image_axes
from autoopt.model.session import write_optimized
from autoopt.model.session_options import plain_options
from autoopt.option_names import option
from autoopt.tuning import KINDS

BY_CLASS: Final = ("accuracy", "f1")
"""Metrics, besides `topN_accuracy`, of outputs with one score for each class."""
# Of the values 0 to 1 of red, green and blue; torchvision's models expect them.
IMAGENET_MEAN: Final = np.array(PREPROCESSED["imagenet"]["mean"])
IMAGENET_STD: Final = np.array(PREPROCESSED["imagenet"]["std"])


ZERO: Final = np.zeros(1)
ONE: Final = np.ones(1)


@dataclass(frozen=True)
class Scaling:
    """A usual way from pixels of 0 to 255 to the values that a model takes: `(pixel * scale - mean) / std`."""

    name: str
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def options(self, factor: Array = ONE, offset: Array = ZERO) -> str:
        """The options that scale `values` so, of which `values * factor + offset` are pixels."""
        scale = 1.0 if len(factor) > 1 else float(factor[0]) * self.scale
        divisor = factor * self.scale / scale
        mean, std = (np.array(self.mean) - offset * self.scale) / divisor, np.array(self.std) / divisor
        text = option("scale", _rounded(scale))
        if mean.any() or (std != 1).any():
            text += f" {option('mean', list(map(_rounded, mean)))} {option('std', list(map(_rounded, std)))}"
        return text


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


SCALINGS: Final = (
    Scaling("0..255"),
    Scaling("0..1", 1 / 255),
    Scaling("-1..1", 1 / 255, (0.5,), (0.5,)),
    Scaling("ImageNet's mean and standard deviation", 1 / 255, tuple(IMAGENET_MEAN), tuple(IMAGENET_STD)),
)


@dataclass(frozen=True)
class Sign:
    """A sentence on what does not fit."""

    text: str
    stops: bool = False
    """True if the accuracy is not that of the model, so that no limit on it means anything."""


def signs(request: MeasureRequest) -> list[Sign]:
    """Look for signs in the outputs of the source model on the data; without data, for what the runtime changes."""
    is_large = sum(size_of(request.candidate.path).values()) > KINDS.large_model
    if request.data is None and is_large:
        return []
    data = evaluation_data(request)
    names = class_names(data)
    data = subset(
        request, data, min(KINDS.checked_items if request.data is not None else KINDS.compared_items, len(data))
    )
    # As many items as its speed allows, at least one.
    runner = ModelRunner.open(request.candidate, request, timed=False, packs_weights=not is_large)
    began = time.monotonic()
    items: list[Item] = []
    for item in runner.items(data, batch_size=request.data_batch_size):
        items.append(item)
        seconds = time.monotonic() - began
        if seconds > KINDS.check_seconds or (len(items) >= KINDS.enough_items and seconds > KINDS.seconds_for_more):
            break
    found: list[Sign] = []
    if request.data is not None:
        found += _signs_in_outputs(request, data.take(np.arange(len(items))), items, names)
    if not is_large:
        found += map(Sign, _changed_by_runtime(request, data, items))
        found += map(Sign, _joined_draws(request.candidate))
    return found


def _changed_by_runtime(request: MeasureRequest, data: DataSet, items: Sequence[Item]) -> Iterator[str]:
    """Compare the outputs with those without the runtime's graph optimization, which fuses some operators wrongly."""
    if request.states:
        return
    plain = {**request.candidate.session_options, "graph_optimization_level": "disable"}
    try:
        runner = ModelRunner.open(ModelFile(request.candidate.path, plain), request, timed=False)
        others = list(runner.items(data.take(np.arange(min(len(items), KINDS.compared_items))), batch_size=1))
    except Exception:  # any exception type of the runtime: some operators run only in fused form
        return
    for number, name in enumerate(runner.outputs):
        largest, difference = 1e-30, 0.0
        for item, other_item in zip(items, others, strict=False):
            one, other = np.asarray(item[number]), np.asarray(other_item[number])
            if one.dtype.kind != "f" or one.shape != other.shape:
                break
            largest = max(largest, float(np.abs(other).max(initial=0.0)))
            difference = max(difference, float(np.abs(one - other).max(initial=0.0)))
        else:
            if difference > KINDS.changed_share * largest:
                yield (
                    f"onnxruntime's graph optimization changes output {name!r} by up to {difference / largest:.0%} of "
                    "its largest value; autoopt keeps what onnxruntime computes by default, and the session option "
                    "graph_optimization_level: disable gives what the model says"
                )
                return


def _joined_draws(model: ModelFile) -> Iterator[str]:
    """Tell if the runtime's graph optimization takes equal random operators for one."""
    count = random_nodes(io.parse(Path(model.path))) if Path(model.path).suffix == ".onnx" else 0
    if count < 2:
        return
    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder, "model.onnx")
        try:
            write_optimized(model.path, optimized, plain_options(model.session_options))
        except Exception:  # any exception type of the runtime: running the model says more
            return
        left = random_nodes(io.parse(optimized))
    if left < count:
        yield (
            f"onnxruntime's graph optimization joins {count} random operators into {left}, which draw equal numbers "
            "then; the session option graph_optimization_level: disable keeps them apart"
        )


def _signs_in_outputs(request: MeasureRequest, data: DataSet, items: Sequence[Item], names: Array) -> Iterator[Sign]:
    outputs = predictions_of(request, request.candidate, items)
    if data.labels is not None and outputs:
        data = replace(data, labels=numbered(data.labels, names, outputs))
    first = np.asarray(outputs[0]) if outputs else np.zeros(0)
    if first.dtype.kind == "f" and not np.isfinite(first).all():
        broken = (~np.isfinite(first.reshape(len(first), -1))).any(axis=1).sum()
        yield Sign(f"the model returns NaN or infinite values for {broken} of {len(data)} items")
        return
    is_constant = len(data) >= KINDS.fewest_items and first.shape[:1] == (len(data),) and _is_constant(first)
    if is_constant:
        yield Sign(f"the model returns the same output for all of {len(data)} items")
    if data.labels is not None:
        data = replace(data, labels=plain_labels(data.labels))
        yield from _label_signs(request, data, outputs, names, is_constant=is_constant)


def _label_signs(
    request: MeasureRequest, data: DataSet, outputs: Sequence[object], names: Array, *, is_constant: bool
) -> Iterator[Sign]:
    """Look for signs in outputs beside labels, by the kind of the labels and the metrics."""
    labels = np.asarray(data.labels)
    if "r2" in request.metrics and len(data) >= KINDS.fewest_items:
        yield from _value_signs(outputs, labels)
    has_classes = any(name in BY_CLASS or name.endswith("_accuracy") for name in request.metrics)
    if has_classes and labels.ndim == 1 and labels.dtype.kind in "iu":
        yield from _class_signs(request, data, np.asarray(outputs[0]), names, is_constant=is_constant)


def _is_constant(output: Array) -> bool:
    if output.dtype.kind not in "fiub":
        return bool(len(np.unique(output.astype(str))) == 1)
    values = output.reshape(len(output), -1).astype(np.float64)
    spread = values.max(axis=0) - values.min(axis=0)
    return bool(np.all(spread <= 1e-6 * np.abs(values).max(initial=1e-30)))


def _value_signs(outputs: Sequence[object], labels: Array) -> Iterator[Sign]:
    """Look for predicted values that are further from the labels than the labels' mean is."""
    try:
        score = r2(outputs, labels)(np.arange(len(labels)))
    except (InputError, ValueError):  # reported where the source model is measured
        return
    if score < 0:
        yield Sign(
            f"the source model's r2 of {score:.3g} on {len(labels)} items is worse than that of a constant; "
            "check the unit of the labels, the order of the columns and the preprocessing"
        )


def _class_signs(
    request: MeasureRequest, data: DataSet, output: Array, names: Array, *, is_constant: bool
) -> Iterator[Sign]:
    """Look for labels that no class has, and for an accuracy by chance, which another scaling may raise."""
    labels = np.asarray(data.labels)
    if output.dtype.kind in "iu" and output.shape[:1] == (output.size,):
        yield from _class_id_signs(output.reshape(-1), labels, names)
        return
    if output.ndim != 2 or output.shape[1] < 2 or output.dtype.kind != "f":
        return
    classes = int(output.shape[1])
    yield from _labels_outside(labels, classes)
    predictions = output.argmax(axis=1)
    order, is_certain = _order_remedy(predictions, labels, names)
    said = f"no better than chance among {classes} classes", "low"
    remedy = order or "check the labels, the order of the classes and the preprocessing"
    yield from _chance_signs(predictions, labels, 1 / classes, said, remedy, is_certain=is_certain)
    accuracy, limit = float((predictions == labels).mean()), _chance(1 / classes, len(labels))
    if is_constant or (len(labels) >= KINDS.fewest_items and accuracy <= limit):
        yield from _better_scaling(request, data, labels, max(accuracy, limit))


def _labels_outside(labels: Array, classes: int) -> Iterator[Sign]:
    """Look for labels that are no class of the output."""
    outside = np.unique(labels[(labels < 0) | (labels >= classes)])
    if len(outside):
        counts_from_1 = "; do they count from 1?" if outside[0] == classes and labels.min() > 0 else ""
        values = ", ".join(map(str, outside[:3]))
        yield Sign(f"labels such as {values} never occur in the output of {classes} classes{counts_from_1}")


def _class_id_signs(predictions: Array, labels: Array, names: Array) -> Iterator[Sign]:
    """Look for predicted class ids, as of scikit-learn's classifiers, that agree with the labels only by chance."""
    if len(predictions) != len(labels) or len(labels) < KINDS.fewest_items or len(np.unique(labels)) < 2:
        return
    accuracy = float((predictions == labels).mean())
    # The agreement of independent predictions and labels, as in Cohen's kappa.
    classes = np.union1d(predictions, labels)
    by_chance = float(sum((predictions == each).mean() * (labels == each).mean() for each in classes))
    ids = f"labels such as {labels.min()} and {labels.max()}, class ids of {predictions.min()} to {predictions.max()}"
    order, is_certain = _order_remedy(predictions, labels, names)
    remedy = order or "check the labels, the order of the columns and the preprocessing"
    if labels.min() > 0 and float((predictions == labels - 1).mean()) > accuracy + 0.1:
        remedy = "do the labels count from 1? Subtract 1"
    said = f"no better than chance ({ids})", f"low ({ids})"
    yield from _chance_signs(predictions, labels, by_chance, said, remedy, is_certain=is_certain)


def _chance_signs(
    predictions: Array, labels: Array, chance: float, said: tuple[str, str], remedy: str, *, is_certain: bool
) -> Iterator[Sign]:
    """Look for an accuracy by chance; `said` is what is said of that, and of a better one if the order is certain."""
    accuracy = float((predictions == labels).mean())
    is_chance = len(labels) >= KINDS.fewest_items and accuracy <= _chance(chance, len(labels))
    if is_chance or is_certain:
        yield Sign(
            f"the source model's accuracy of {_percent(accuracy)} on {len(labels)} items is "
            f"{said[0] if is_chance else said[1]}; {remedy}",
            stops=is_certain or accuracy < _chance(chance, len(labels), -KINDS.worse_deviations),
        )


def _order_remedy(predictions: Array, labels: Array, names: Array) -> tuple[str, bool]:
    """The remedy for labels that have the model's classes in another order; empty if they do not.

    Returns:
        The remedy, and True if there are enough items to rule out chance.
    """
    present, places = np.unique(labels, return_inverse=True)
    usual = np.array([_most_frequent(predictions[labels == label]) for label in present])
    classes = dict(zip(present.tolist(), usual.tolist(), strict=True))
    moved = present[present != usual].tolist()
    share = float((predictions == usual[places]).mean())
    if not moved or len(set(classes.values())) < len(classes) or share < KINDS.same_classes:
        return "", False
    is_certain = len(labels) >= KINDS.per_class * len(classes) and share > _chance(
        1 / len(classes), len(labels), KINDS.worse_deviations
    )
    called = {label: str(names[label]) if 0 <= label < len(names) else str(label) for label in classes}
    order = option("classes", of="NAME,...")
    if sorted(classes.values()) == list(range(len(classes))):
        order = option("classes", [called[label] for label in sorted(classes, key=classes.__getitem__)])
    moved_to = f"label {called[moved[0]]} is mostly the model's class {classes[moved[0]]}"
    return f"the classes are in another order: {moved_to}; {order} gives the model's order", is_certain


def _most_frequent(values: Array) -> int:
    ids, counts = np.unique(values, return_counts=True)
    return int(ids[counts.argmax()])


def _chance(share: float, items: int, deviations: float = 2) -> float:
    """The accuracy that guesses, of which `share` are right on average, reach with a probability of 2.5 %."""
    return share + deviations * float(np.sqrt(share * (1 - share) / items))


def _better_scaling(request: MeasureRequest, data: DataSet, labels: Array, least: float) -> Iterator[Sign]:
    """Try the usual scalings of pixels; name the one that makes the model far more accurate."""
    if len(data.columns) != 1:
        return
    ((name, array),) = data.columns.items()
    sides = image_axes(array.shape)
    if sides is None or array.dtype.kind not in "fu":
        return
    axis = 6 - sum(sides)  # that of the channels, besides the items' and the sides'
    factor, offset = _to_pixels(array, axis)
    pixels = array.astype(np.float64) * factor + offset
    runner = ModelRunner.open(request.candidate, request, timed=False)
    best_accuracy, best = 0.0, SCALINGS[0]
    for scaling in SCALINGS:
        if len(scaling.mean) > 1 and array.shape[axis] != len(scaling.mean):
            continue
        scaled = (pixels * scaling.scale - _along(scaling.mean, axis)) / _along(scaling.std, axis)
        items = list(runner.items(replace(data, columns={name: scaled.astype(np.float32)})))
        scores = np.asarray(predictions_of(request, request.candidate, items)[0])
        accuracy = float((scores.argmax(axis=1) == labels).mean())
        if accuracy > best_accuracy:
            best_accuracy, best = accuracy, scaling
    if best_accuracy <= least + 0.1:
        return
    remedy = "scale them this way"
    if request.data is not None and request.data.pre_process is None:
        remedy = f"add {best.options(factor.ravel(), offset.ravel())}"
        if loader_of(request.data) == "images":
            remedy = f"add {best.options()}"
    yield Sign(f"with pixels as {best.name} its accuracy is {_percent(best_accuracy)}: {remedy}")


def _along(values: Sequence[float] | Array, axis: int) -> Array:
    shape = [1, 1, 1, 1]
    shape[axis] = len(values)
    return np.array(values).reshape(shape)


def _to_pixels(array: Array, axis: int) -> tuple[Array, Array]:
    """Factor and offset from values to the pixels of 0 to 255 that they probably stand for, by their range."""
    low, high = float(array.min()), float(array.max())
    if low >= 0:
        return np.array(255.0 if high <= 1 else 1.0), np.array(0.0)
    if low >= -1 and high <= 1:
        return np.array(127.5), np.array(127.5)
    if array.shape[axis] == len(IMAGENET_MEAN):
        return _along(IMAGENET_STD * 255, axis), _along(IMAGENET_MEAN * 255, axis)
    factor = 255 / (high - low)
    return np.array(factor), np.array(-low * factor)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
