"""The function about data that workers run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from autoopt.data.config import DataConfig
from autoopt.data.dataset import MIN_ITEMS, Array, DataSet, may_be_constant, plain_labels
from autoopt.data.description import Column, DataDescription
from autoopt.data.opening import loader_of, next_tokens, open_data
from autoopt.data.sources.recurrence import find_recurrence
from autoopt.data.sources.synthetic import assumed_sizes
from autoopt.json_codec import JsonValue, to_json
from autoopt.model.io import parse
from autoopt.model.lazy_imports import onnx
from autoopt.model.roles import Kind

TEXTS = 1000
"""Labels that are looked at for one that is text; most different texts that may be names of classes."""


SHOWN = 6
"""Values of an item that are shown."""


def describe(payload: Mapping[str, object]) -> dict[str, JsonValue]:
    """Describe the data set of `{"data": config, "model"?: path, "roles"?: kinds of inputs}`.

    Synthetic data needs the path of a model.

    Returns:
        A `DataDescription` as JSON.

    Raises:
        InputError: The data cannot be read.
    """
    model = payload.get("model")
    config = DataConfig.parse(payload["data"])
    roles = cast("Mapping[str, Kind] | None", payload.get("roles"))
    data = open_data(config, None if model is None else str(model), roles)
    made_up = config.load_dataset is not None and config.load_dataset.type == "synthetic"
    columns = {name: _column(array) for name, array in data.columns.items()}
    columns |= {name: _uneven_column(arrays) for name, arrays in data.uneven.items()}
    description = DataDescription(len(data), columns, made_up=made_up, loader=loader_of(config), reading=data.reading)
    if made_up and model is not None:
        description = replace(description, assumed=assumed_sizes(str(model), data.uneven, roles))
    if model and not made_up and not config.state:
        recurrence = find_recurrence(str(model), data)
        if recurrence is not None:
            description = replace(
                description,
                state=recurrence.state,
                reset_every=recurrence.reset_every,
                starts=recurrence.starts,
            )
    if data.labels is not None:
        description = _with_labels(description, data, data.labels, None if model is None else Path(str(model)))
    return to_json(description)


def _with_labels(description: DataDescription, data: DataSet, labels: Array, model: Path | None) -> DataDescription:
    """The description of a data set and of its labels."""
    kind, text, broken = _label_kind(data, labels, model), _label_text(labels), 0
    if labels.dtype.kind == "f":
        broken = int((~np.isfinite(labels)).reshape(len(labels), -1).any(axis=1).sum())
    description = replace(description, labels=True, label_kind=kind, label_text=text, broken_labels=broken)
    description = replace(description, first_label=_beginning(labels[0]))
    plain = plain_labels(labels)
    if kind == "class":
        values, counts = np.unique(plain if plain.dtype.kind in "iub" else plain.astype(str), return_counts=True)
        if values.dtype.kind == "i":
            counts = counts[values >= 0]  # others do not count
        smallest, labelled = int(counts.min(initial=plain.size)), int(counts.sum())
        description = replace(description, classes=len(counts), smallest_class=smallest, labelled=labelled)
    names = data.classes[:TEXTS]
    if text is not None:
        texts = np.unique(labels.astype(str))
        names = tuple(map(str, texts)) if len(texts) <= TEXTS else ()
    return replace(description, class_names=names)


def _column(array: Array) -> Column:
    finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
    if array.ndim == 0:
        column = Column(str(array.dtype), (), finite, stacked=False, span=_span([array]), constant=_value_of(array))
    else:
        column = Column(str(array.dtype), array.shape, finite, span=_span([array]), constant=_constant(array))
    return replace(column, range=_range([array]), first=_beginning(array[0] if array.ndim else array))


def _uneven_column(arrays: Sequence[Array]) -> Column:
    dtype, shape, axes = str(arrays[0].dtype), arrays[0].shape, _open_axes(arrays)
    column = Column(dtype, shape, stacked=False, open_axes=axes, span=_span(arrays), constant=_constant(arrays))
    return replace(column, range=_range(arrays), first=_beginning(arrays[0]))


def _beginning(item: object) -> str:
    """The first values of an item in words."""
    values = np.asarray(item).ravel()
    texts = [f"{value:.4g}" if isinstance(value, float) else str(value)[:40] for value in values[:SHOWN].tolist()]
    return " ".join([*texts, "..."] if values.size > SHOWN else texts)


def _range(arrays: Sequence[Array]) -> str:
    """The range of numbers in words; empty for others."""
    arrays = [array for array in arrays if array.size]
    if not arrays or any(array.dtype.kind not in "biuf" for array in arrays):
        return ""
    low, high = min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays)
    return f"{low:.4g} to {high:.4g}"


def _span(arrays: Sequence[Array]) -> tuple[int, int] | None:
    """The smallest and the largest integer; None if there are none, or other numbers."""
    arrays = [array for array in arrays if array.size]
    if not arrays or any(array.dtype.kind not in "iu" for array in arrays):
        return None
    return min(int(array.min()) for array in arrays), max(int(array.max()) for array in arrays)


def _constant(items: Array | Sequence[Array]) -> JsonValue:
    """The value of each item if enough of them have the same; else None."""
    first = np.asarray(items[0])
    if len(items) < MIN_ITEMS or not all(np.array_equal(first, item) for item in items):
        return None
    return _value_of(first)


def _value_of(item: Array) -> JsonValue:
    """The value of an item as nested lists; None if it may not count as a constant."""
    if not may_be_constant(item):
        return None
    value: JsonValue = item.tolist()
    return value


def _open_axes(arrays: Sequence[Array]) -> tuple[int, ...]:
    """Axes of the first array along which the others have another size; all axes if they differ in rank."""
    shapes = {array.shape for array in arrays}
    rank = arrays[0].ndim
    if any(len(shape) != rank for shape in shapes):
        return tuple(range(rank))
    sizes = map(set, zip(*shapes, strict=True))
    return tuple(axis for axis, sizes_of_axis in enumerate(sizes) if len(sizes_of_axis) > 1)


def _label_kind(data: DataSet, labels: Array, model: Path | None) -> str:
    if next_tokens(data) is not None:
        return "token"
    plain = plain_labels(labels)
    is_single = plain.size == len(plain)
    if plain.dtype.kind == "f" or (plain.dtype == "uint8" and not is_single):
        are_classes = is_single and model is not None and _are_classes_of(model, plain)
        if are_classes:
            return "class"
        return "value" if is_single else "tensor"
    return "class"


def _are_classes_of(model: Path, labels: Array) -> bool:
    """Tell if numbers are whole and the model predicts classes: a score for each of them, or whole numbers itself."""
    outputs = parse(model).graph.output if model.suffix == ".onnx" else ()
    if not outputs or not np.array_equal(labels, np.round(labels)):
        return False
    kind = outputs[0].type.tensor_type
    if kind.elem_type == onnx.TensorProto.INT64:
        return True
    scores = kind.shape.dim[-1].dim_value if len(kind.shape.dim) == 2 else 0
    return bool(scores > 1 and labels.min() >= 0 and labels.max() < scores)


def _label_text(labels: Array) -> str | None:
    """The first label that is text and not a number."""
    if labels.dtype.kind not in "OU":
        return None
    for label in labels.ravel()[:TEXTS]:
        try:
            float(label)
        except (TypeError, ValueError):
            return str(label)
    return None
