"""Signs that the source model and its data do not belong together: chance accuracy, constant or NaN outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from autoopt.data.dataset import Array, DataSet, plain_labels
from autoopt.measure.inference.inputs import evaluation_data
from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.quality.predictions import outputs_of, predictions_of, subset
from autoopt.measure.request import MeasureRequest

ITEMS: Final = 128
"""Items that are looked at."""
FEWEST: Final = 8
"""Number of items below which an accuracy says nothing: a guess may be right as often."""
BY_CLASS: Final = ("accuracy", "f1")
"""Metrics, besides `topN_accuracy`, of outputs with one score for each class."""
CHANNELS: Final = (1, 3, 4)
IMAGENET_MEAN: Final = np.array([0.485, 0.456, 0.406])
IMAGENET_STD: Final = np.array([0.229, 0.224, 0.225])


@dataclass(frozen=True)
class Scaling:
    """A usual way from pixels of 0 to 255 to the values that a model takes: `(pixel * scale - mean) / std`."""

    name: str
    options: str
    """The options of the command line that ask for it."""
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


SCALINGS: Final = (
    Scaling("0..255", "--scale 1"),
    Scaling("0..1", "--scale 0.00392157", 1 / 255),
    Scaling("-1..1", "--scale 0.00392157 --mean 0.5 --std 0.5", 1 / 255, (0.5,), (0.5,)),
    Scaling(
        "ImageNet's mean and standard deviation",
        "--scale 0.00392157 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225",
        1 / 255,
        tuple(IMAGENET_MEAN),
        tuple(IMAGENET_STD),
    ),
)


def warnings(request: MeasureRequest) -> list[str]:
    """Look for signs in the outputs of the source model on the request's data, one sentence each."""
    data = evaluation_data(request)
    return list(_warnings(request, subset(request, data, min(ITEMS, len(data)))))


def _warnings(request: MeasureRequest, data: DataSet) -> Iterator[str]:
    outputs = predictions_of(request, request.candidate, outputs_of(request, request.candidate, data))
    first = np.asarray(outputs[0]) if outputs else np.zeros(0)
    if first.dtype.kind == "f" and not np.isfinite(first).all():
        yield f"the model returns NaN or infinite values for {_broken_items(first)} of {len(data)} items"
        return
    has_enough = len(data) >= FEWEST
    is_constant = has_enough and first.ndim > 0 and len(first) == len(data) and _is_constant(first)
    if is_constant:
        yield f"the model returns the same output for all of {len(data)} items"
    labels = _class_labels(request, data)
    classes = _class_count(first)
    if labels is None or classes is None:
        return
    yield from _label_warnings(labels, classes)
    accuracy = _accuracy(first, labels)
    limit = _chance(classes, len(data))
    is_chance = has_enough and accuracy <= limit
    if is_chance:
        yield (
            f"the source model's accuracy of {accuracy:.1%} on {len(data)} items is no better than chance among "
            f"{classes} classes; check the labels, the order of the classes and the preprocessing"
        )
    if is_constant or is_chance:
        yield from _better_scaling(request, data, labels, max(accuracy, limit))


def _class_labels(request: MeasureRequest, data: DataSet) -> Array | None:
    """The labels as class ids, one per item; None if there are no such labels or no metric reads them so."""
    if data.labels is None or not any(name in BY_CLASS or name.endswith("_accuracy") for name in request.metrics):
        return None
    labels = plain_labels(data.labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    return labels


def _label_warnings(labels: Array, classes: int) -> Iterator[str]:
    """Look for class ids that the model cannot predict."""
    outside = np.unique(labels[(labels < 0) | (labels >= classes)])
    if len(outside):
        counts_from_1 = "; do they count from 1?" if outside[0] == classes and labels.min() > 0 else ""
        values = ", ".join(map(str, outside[:3]))
        yield f"labels such as {values} never occur in the output of {classes} classes{counts_from_1}"


def _broken_items(output: Array) -> int:
    return int((~np.isfinite(output.reshape(len(output), -1))).any(axis=1).sum())


def _is_constant(output: Array) -> bool:
    if output.dtype.kind not in "fiub":
        return bool(len(np.unique(output.astype(str))) == 1)
    values = output.reshape(len(output), -1).astype(np.float64)
    spread = values.max(axis=0) - values.min(axis=0)
    return bool(np.all(spread <= 1e-6 * np.abs(values).max(initial=1e-30)))


def _class_count(output: Array) -> int | None:
    """The number of classes of scores (items, classes); None for other outputs."""
    if output.ndim != 2 or output.shape[1] < 2 or output.dtype.kind != "f":
        return None
    return int(output.shape[1])


def _accuracy(scores: Array, labels: Array) -> float:
    return float((scores.argmax(axis=1) == labels).mean())


def _chance(classes: int, items: int) -> float:
    """The accuracy that guessing reaches with a probability of 2.5 %."""
    share = 1 / classes
    return share + 2 * float(np.sqrt(share * (1 - share) / items))


def _better_scaling(request: MeasureRequest, data: DataSet, labels: Array, least: float) -> Iterator[str]:
    """Try the usual scalings of pixels; name the one that makes the model far more accurate."""
    if len(data.columns) != 1:
        return
    ((name, array),) = data.columns.items()
    if not _is_image(array):
        return
    axis = 1 if array.shape[1] in CHANNELS else 3
    pixels = _pixels(array.astype(np.float64), axis)
    runner = ModelRunner.open(request.candidate, request)
    best_accuracy, best = 0.0, SCALINGS[0]
    for scaling in SCALINGS:
        if len(scaling.mean) > 1 and array.shape[axis] != len(scaling.mean):
            continue
        scaled = (pixels * scaling.scale - _along(scaling.mean, axis)) / _along(scaling.std, axis)
        items = list(runner.items(replace(data, columns={name: scaled.astype(np.float32)})))
        output = np.asarray(predictions_of(request, request.candidate, items)[0])
        accuracy = _accuracy(output, labels)
        if accuracy > best_accuracy:
            best_accuracy, best = accuracy, scaling
    if best_accuracy > least + 0.1:
        yield f"with pixels as {best.name} its accuracy is {best_accuracy:.1%}: add {best.options}"


def _is_image(array: Array) -> bool:
    return array.ndim == 4 and array.dtype.kind in "fu" and (array.shape[1] in CHANNELS or array.shape[3] in CHANNELS)


def _along(values: tuple[float, ...], axis: int) -> Array:
    shape = [1, 1, 1, 1]
    shape[axis] = len(values)
    return np.array(values).reshape(shape)


def _pixels(array: Array, axis: int) -> Array:
    """The pixels of 0 to 255 that values probably stand for, by their range."""
    low, high = float(array.min()), float(array.max())
    if low >= 0:
        return array * 255 if high <= 1 else array
    if low >= -1 and high <= 1:
        return (array + 1) * 127.5
    if array.shape[axis] == len(IMAGENET_MEAN):
        return (array * _along(tuple(IMAGENET_STD), axis) + _along(tuple(IMAGENET_MEAN), axis)) * 255
    return (array - low) / (high - low) * 255
