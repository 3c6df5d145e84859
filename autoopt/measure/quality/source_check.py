"""Signs that the source model and its data do not belong together: chance accuracy, constant or NaN outputs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from autoopt.data.config import DataConfig
from autoopt.data.dataset import Array, DataSet, plain_labels
from autoopt.data.opening import loader_of
from autoopt.data.reading import PREPROCESSED
from autoopt.errors import InputError
from autoopt.measure.inference.batches import evaluation_data
from autoopt.measure.inference.runner import Item, ModelRunner
from autoopt.measure.quality.classification import class_names, numbered
from autoopt.measure.quality.predictions import predictions_of, subset
from autoopt.measure.quality.regression import r2
from autoopt.measure.request import MeasureRequest
from autoopt.model import io
from autoopt.model.model_file import ModelFile, size_of
from autoopt.model.random_nodes import random_nodes
from autoopt.model.session import write_optimized
from autoopt.model.session_options import plain_options

ITEMS: Final = 128
"""Items that are looked at, at most."""
SECONDS: Final = 5.0
"""Time for running them: a slow model is looked at on fewer."""
LARGE: Final = 1 << 30
"""Bytes of a model from which packing its weights takes longer than packed ones save on so few items."""
ENOUGH: Final = 16
"""Items of a slow model that suffice."""
SECONDS_FOR_MORE: Final = 2.0
"""Time after which no more than these are run."""
FEWEST: Final = 8
"""Number of items below which an accuracy says nothing: a guess may be right as often."""
WORSE: Final = 4
"""Standard deviations from chance from which an accuracy is no accident."""
PER_CLASS: Final = 5
"""Items of each class, on average, without which the order of the classes is a guess."""
SAME_CLASSES: Final = 0.7
"""Accuracy from which labels in another order are those of the model's classes."""
BY_CLASS: Final = ("accuracy", "f1")
"""Metrics, besides `topN_accuracy`, of outputs with one score for each class."""
CHANNELS: Final = (1, 3, 4)
"""Channels of images: grey, colour, and colour with transparency."""
# Of the values 0 to 1 of red, green and blue; torchvision's models expect them.
IMAGENET_MEAN: Final = np.array(PREPROCESSED["imagenet"]["mean"])
IMAGENET_STD: Final = np.array(PREPROCESSED["imagenet"]["std"])


@dataclass(frozen=True)
class Scaling:
    """A usual way from pixels of 0 to 255 to the values that a model takes: `(pixel * scale - mean) / std`."""

    name: str
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


SCALINGS: Final = (
    Scaling("0..255"),
    Scaling("0..1", 1 / 255),
    Scaling("-1..1", 1 / 255, (0.5,), (0.5,)),
    Scaling("ImageNet's mean and standard deviation", 1 / 255, tuple(IMAGENET_MEAN), tuple(IMAGENET_STD)),
)


COMPARED: Final = 4
"""Items on which the runtime's graph optimization is compared with none."""
CHANGED: Final = 0.1
"""Difference, as a share of the largest value, that neither rounding nor integer kernels explain."""


@dataclass(frozen=True)
class Sign:
    """A sentence on what does not fit."""

    text: str
    stops: bool = False
    """True if the accuracy is not that of the model, so that no limit on it means anything."""


def signs(request: MeasureRequest) -> list[Sign]:
    """Look for signs in the outputs of the source model on the data; without data, for what the runtime changes."""
    if request.data is None and sum(size_of(request.candidate.path).values()) > LARGE:
        return []
    data = evaluation_data(request)
    names = class_names(data)
    data = subset(request, data, min(ITEMS if request.data is not None else COMPARED, len(data)))
    items = _run(request, data)
    found = [*_changed_by_runtime(request, data, items), *_joined_draws(request.candidate)]
    if request.data is not None:
        found = [*_signs(request, data.take(np.arange(len(items))), items, names), *found]
    return [sign if isinstance(sign, Sign) else Sign(sign) for sign in found]


def _changed_by_runtime(request: MeasureRequest, data: DataSet, items: Sequence[Item]) -> Iterator[Sign | str]:
    """Compare the outputs with those without the runtime's graph optimization, which fuses some operators wrongly."""
    if sum(size_of(request.candidate.path).values()) > LARGE or request.states:
        return
    plain = {**request.candidate.session_options, "graph_optimization_level": "disable"}
    try:
        runner = ModelRunner.open(ModelFile(request.candidate.path, plain), request, timed=False)
        others = list(runner.items(data.take(np.arange(min(len(items), COMPARED))), batch_size=1))
    except Exception:  # any exception type of the runtime: some operators run only in fused form
        return
    for number, name in enumerate(runner.outputs):
        pairs = [
            (np.asarray(one[number]), np.asarray(other[number])) for one, other in zip(items, others, strict=False)
        ]
        if any(one.dtype.kind != "f" or one.shape != other.shape for one, other in pairs):
            continue
        largest = max(float(np.abs(other).max(initial=1e-30)) for _, other in pairs)
        difference = max(float(np.abs(one - other).max(initial=0.0)) for one, other in pairs)
        if difference > CHANGED * largest:
            yield (
                f"onnxruntime's graph optimization changes output {name!r} by up to {difference / largest:.0%} of its "
                "largest value; autoopt keeps what onnxruntime computes by default, and the session option "
                "graph_optimization_level: disable gives what the model says"
            )
            return


def _joined_draws(model: ModelFile) -> Iterator[str]:
    """Tell if the runtime's graph optimization takes equal random operators for one."""
    if Path(model.path).suffix != ".onnx" or sum(size_of(model.path).values()) > LARGE:
        return
    count = random_nodes(io.parse(Path(model.path)))
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


def _run(request: MeasureRequest, data: DataSet) -> list[Item]:
    """Run the source model on as many items as its speed allows, at least one."""
    is_large = sum(size_of(request.candidate.path).values()) > LARGE
    runner = ModelRunner.open(request.candidate, request, timed=False, packs_weights=not is_large)
    began = time.monotonic()
    items: list[Item] = []
    for item in runner.items(data, batch_size=request.data_batch_size):
        items.append(item)
        seconds = time.monotonic() - began
        if seconds > SECONDS or (len(items) >= ENOUGH and seconds > SECONDS_FOR_MORE):
            break
    return items


def _signs(request: MeasureRequest, data: DataSet, items: Sequence[Item], names: Array) -> Iterator[Sign | str]:
    outputs = predictions_of(request, request.candidate, items)
    if data.labels is not None and outputs:
        data = replace(data, labels=numbered(data.labels, names, outputs))
    first = np.asarray(outputs[0]) if outputs else np.zeros(0)
    if first.dtype.kind == "f" and not np.isfinite(first).all():
        broken = (~np.isfinite(first.reshape(len(first), -1))).any(axis=1).sum()
        yield f"the model returns NaN or infinite values for {broken} of {len(data)} items"
        return
    is_constant = len(data) >= FEWEST and first.ndim > 0 and len(first) == len(data) and _is_constant(first)
    if is_constant:
        yield f"the model returns the same output for all of {len(data)} items"
    yield from _value_warnings(request, outputs, data)
    labels = _class_labels(request, data)
    if labels is None:
        return
    if _is_class_ids(first):
        yield from _class_id_signs(first, labels, names)
    else:
        yield from _score_signs(request, data, first, labels, names, is_constant)


def _score_signs(
    request: MeasureRequest, data: DataSet, scores: Array, labels: Array, names: Array, is_constant: bool
) -> Iterator[Sign | str]:
    """Look for labels that no class has, and for an accuracy by chance, which another scaling may raise."""
    classes = _class_count(scores)
    if classes is None:
        return
    yield from _label_warnings(labels, classes)
    accuracy = _accuracy(scores, labels)
    limit = _chance(1 / classes, len(data))
    is_chance = len(data) >= FEWEST and accuracy <= limit
    order, is_certain = _order_remedy(scores.argmax(axis=1), labels, names)
    if is_chance or is_certain:
        low = f"is no better than chance among {classes} classes" if is_chance else "is low"
        yield Sign(
            f"the source model's accuracy of {_percent(accuracy)} on {len(data)} items {low}; "
            f"{order or 'check the labels, the order of the classes and the preprocessing'}",
            stops=is_certain or accuracy < _chance(1 / classes, len(data), -WORSE),
        )
    if is_constant or is_chance:
        yield from _better_scaling(request, data, labels, max(accuracy, limit))


def _value_warnings(request: MeasureRequest, outputs: Sequence[object], data: DataSet) -> Iterator[str]:
    """Look for predicted values that are further from the labels than the labels' mean is."""
    if data.labels is None or "r2" not in request.metrics or len(data) < FEWEST:
        return
    try:
        score = r2(outputs, plain_labels(data.labels))(np.arange(len(data)))
    except (InputError, ValueError):  # reported where the source model is measured
        return
    if score < 0:
        yield (
            f"the source model's r2 of {score:.3g} on {len(data)} items is worse than that of a constant; "
            "check the unit of the labels, the order of the columns and the preprocessing"
        )


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


def _is_class_ids(output: Array) -> bool:
    """True for one integer per item, as classifiers of scikit-learn return it."""
    return output.dtype.kind in "iu" and output.ndim > 0 and output.size == len(output)


def _class_id_signs(output: Array, labels: Array, names: Array) -> Iterator[Sign]:
    """Look for predicted class ids that agree with the labels no more often than by chance."""
    predictions = output.reshape(-1)
    if len(predictions) != len(labels) or len(labels) < FEWEST or len(np.unique(labels)) < 2:
        return
    accuracy = float((predictions == labels).mean())
    # The agreement of independent predictions and labels, as in Cohen's kappa.
    classes = np.union1d(predictions, labels)
    by_chance = float(sum((predictions == each).mean() * (labels == each).mean() for each in classes))
    is_chance = accuracy <= _chance(by_chance, len(labels))
    order, is_certain = _order_remedy(predictions, labels, names)
    if not is_chance and not is_certain:
        return
    ids = f"labels such as {labels.min()} and {labels.max()}, class ids of {predictions.min()} to {predictions.max()}"
    low = "no better than chance" if is_chance else "low"
    remedy = order or "check the labels, the order of the columns and the preprocessing"
    if labels.min() > 0 and float((predictions == labels - 1).mean()) > accuracy + 0.1:
        remedy = "do the labels count from 1? Subtract 1"
    yield Sign(
        f"the source model's accuracy of {_percent(accuracy)} on {len(labels)} items is {low} ({ids}); {remedy}",
        stops=is_certain or accuracy < _chance(by_chance, len(labels), -WORSE),
    )


def _order_remedy(predictions: Array, labels: Array, names: Array) -> tuple[str, bool]:
    """The remedy for labels that have the model's classes in another order; empty if they do not.

    Returns:
        The remedy, and True if there are enough items to rule out chance.
    """
    classes = {}
    for label in np.unique(labels):
        ids, counts = np.unique(predictions[labels == label], return_counts=True)
        classes[int(label)] = int(ids[counts.argmax()])
    renamed = np.array([classes[int(label)] for label in labels])
    moved = [label for label, class_id in classes.items() if label != class_id]
    share = float((predictions == renamed).mean())
    if not moved or len(set(classes.values())) < len(classes) or share < SAME_CLASSES:
        return "", False
    is_certain = len(labels) >= PER_CLASS * len(classes) and share > _chance(1 / len(classes), len(labels), WORSE)
    called = {label: str(names[label]) if 0 <= label < len(names) else str(label) for label in classes}
    order = "NAME,..."
    if sorted(classes.values()) == list(range(len(classes))):
        order = ",".join(called[label] for label in sorted(classes, key=classes.__getitem__))
    moved_to = f"label {called[moved[0]]} is mostly the model's class {classes[moved[0]]}"
    return f"the classes are in another order: {moved_to}; --classes {order} gives the model's order", is_certain


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


def _chance(share: float, items: int, deviations: float = 2) -> float:
    """The accuracy that guesses, of which `share` are right on average, reach with a probability of 2.5 %."""
    return share + deviations * float(np.sqrt(share * (1 - share) / items))


def _better_scaling(request: MeasureRequest, data: DataSet, labels: Array, least: float) -> Iterator[str]:
    """Try the usual scalings of pixels; name the one that makes the model far more accurate."""
    if len(data.columns) != 1:
        return
    ((name, array),) = data.columns.items()
    if not _is_image(array):
        return
    axis = 1 if array.shape[1] in CHANNELS else 3
    factor, offset = _to_pixels(array, axis)
    pixels = array.astype(np.float64) * factor + offset
    runner = ModelRunner.open(request.candidate, request, timed=False)
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
        action = _action(request.data, best, array, axis)
        yield f"with pixels as {best.name} its accuracy is {_percent(best_accuracy)}: {action}"


def _action(data: DataConfig | None, scaling: Scaling, array: Array, axis: int) -> str:
    """The options of the command line that give the pixels this scaling."""
    if data is None or data.pre_process is not None:
        return "scale them this way"
    if loader_of(data) == "images":
        scale, mean, std = scaling.scale, scaling.mean, scaling.std
    else:
        scale, mean, std = _from_array(scaling, array, axis)
    parts = [f"--scale {scale:.6g}"]
    if mean != (0.0,) or std != (1.0,):
        parts += [f"--mean {_numbers(mean)}", f"--std {_numbers(std)}"]
    return f"add {' '.join(parts)}"


def _from_array(scaling: Scaling, array: Array, axis: int) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """Scale, mean and standard deviation that take the array's own values, instead of pixels, to this scaling."""
    factor, offset = map(np.ravel, _to_pixels(array, axis))
    if len(factor) == 1:
        mean = np.array(scaling.mean) - offset * scaling.scale
        return float(factor[0]) * scaling.scale, tuple(map(float, mean)), scaling.std
    std = np.array(scaling.std) / (factor * scaling.scale)
    mean = (np.array(scaling.mean) - offset * scaling.scale) / (factor * scaling.scale)
    return 1.0, tuple(map(float, mean)), tuple(map(float, std))


def _numbers(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:.6g}" for value in values)


def _is_image(array: Array) -> bool:
    return array.ndim == 4 and array.dtype.kind in "fu" and (array.shape[1] in CHANNELS or array.shape[3] in CHANNELS)


def _along(values: tuple[float, ...], axis: int) -> Array:
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
        return _along(tuple(IMAGENET_STD * 255), axis), _along(tuple(IMAGENET_MEAN * 255), axis)
    factor = 255 / (high - low)
    return np.array(factor), np.array(-low * factor)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
