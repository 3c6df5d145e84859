"""The worker function about data: items, columns and labels, and the recurrent state that the items show."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from autoopt.data.config import DataConfig
from autoopt.data.dataset import MIN_ITEMS, Array, DataSet, may_be_constant, plain_labels
from autoopt.data.description import Column, DataDescription
from autoopt.data.fit import fit, specs_of
from autoopt.data.opening import loader_of, next_tokens, open_data
from autoopt.data.sources.synthetic import assumed_sizes
from autoopt.json_codec import JsonValue, to_json
from autoopt.model.io import parse
from autoopt.model.lazy_imports import onnx
from autoopt.model.roles import Kind, may_be_same
from autoopt.model.session import make_session
from autoopt.model.tensors import by_name
from autoopt.tuning import KINDS

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

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


SCAN_SECONDS: Final = 10.0
"""Longest time for running all items, which finds the ends of sequences."""


@dataclass(frozen=True)
class Recurrence:
    """The recurrent state that items of data show."""

    state: Mapping[str, str]
    """Output of the model -> input that takes it with the next item; zero at first, or see `starts`."""
    reset_every: int | None = None
    """Items after which the state is zero again; None if it never is."""
    starts: tuple[int, ...] = ()
    """Items that begin a sequence, with the states in the data; empty if zeros begin all of them."""


def find_recurrence(model: str, data: DataSet) -> Recurrence | None:
    """Run a model on some items and compare its outputs with inputs of the next items.

    None unless outputs of the model are inputs of the next items. The model runs only if some of the data may be
    states, and on all items only if their states begin with other values than zeros.
    """
    names = [name for name, array in data.columns.items() if _may_be_state(array)]
    if not names or len(data.columns) < 2:
        return None
    try:
        session = make_session(model)
        state, has_ends = _returned(session, data, names)
        if not state:
            return None
        if not has_ends:
            recurrence = _from_zeros(state, data)
            if recurrence is not None:
                return recurrence
        return _from_data(session, state, data)
    except Exception:  # The next call that runs the model reports the runtime's own message.
        return None


def _from_zeros(state: Mapping[str, str], data: DataSet) -> Recurrence | None:
    """The recurrence if zeros begin each sequence; None if other values begin the first one."""
    resets = np.flatnonzero(np.all([_is_zero(data.columns[name]) for name in state.values()], axis=0))
    if not len(resets) or resets[0]:
        return None
    if len(resets) == 1:
        return Recurrence(state)
    distances = np.unique(np.diff(resets))
    if len(distances) == 1 and distances[0] > 1 and resets[-1] + distances[0] >= len(data):
        return Recurrence(state, int(distances[0]))
    return _if_sequences(state, resets.tolist(), data)


def _from_data(session: InferenceSession, state: Mapping[str, str], data: DataSet) -> Recurrence | None:
    """The recurrence with the items that do not take over the states of the one before; None if that takes too long."""
    inputs, until = specs_of(session), time.monotonic() + SCAN_SECONDS
    outputs = list(state)
    starts, results = [0], None
    for index, (feed, _) in enumerate(data.feeds(1)):
        item = fit(feed, inputs)
        if results is not None:
            pairs = zip(results, state.values(), strict=True)
            if not all(_is_same(result, item[name]) for result, name in pairs):
                starts.append(index)
        if time.monotonic() > until:
            return None
        results = session.run(outputs, item)
    return _if_sequences(state, starts, data)


def _if_sequences(state: Mapping[str, str], starts: list[int], data: DataSet) -> Recurrence | None:
    """The recurrence, unless most of its sequences are single items."""
    if 2 * len(starts) > len(data):
        return None
    return Recurrence(state, starts=tuple(starts))


def _may_be_state(array: Array) -> bool:
    """True for floats that change from the first item to the second."""
    if array.dtype.kind != "f" or array.ndim < 2 or len(array) < KINDS.state_items:
        return False
    return not np.array_equal(array[0], array[1])


def _is_zero(array: Array) -> Array:
    return np.asarray(~array.reshape(len(array), -1).any(axis=1))


def _returned(session: InferenceSession, data: DataSet, names: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Outputs that return inputs of the next items: the only one for each of these inputs that has any.

    Also true if that does not hold for all items, because some end a sequence.
    """
    inputs = specs_of(session)
    outputs = [output.name for output in session.get_outputs()]
    indices = _compared(data, names)
    hits: Counter[tuple[str, str]] = Counter()
    for count, index in enumerate(indices, start=1):
        (feed, _), (following, _) = data.take(np.array([index, index + 1])).feeds(1)
        results = dict(zip(outputs, session.run(None, fit(feed, inputs)), strict=True))
        expected = fit(following, inputs)
        for name in filter(by_name(inputs).get, names):
            hits.update((output, name) for output in outputs if _is_same(results[output], expected[name]))
        if count >= KINDS.state_first and not hits:
            return {}, False
    returned = [pair for pair, count in hits.items() if count >= KINDS.followed_share * len(indices)]
    sources = Counter(name for _, name in returned)
    state = {output: name for output, name in returned if sources[name] == 1}
    has_ends = any(hits[pair] < len(indices) for pair in state.items())
    return state, has_ends


def _compared(data: DataSet, names: Sequence[str]) -> list[int]:
    """Some items, spread over the data, after which no state is zero."""
    is_zero = np.any([_is_zero(data.columns[name]) for name in names], axis=0)
    followed = np.flatnonzero(~is_zero[1:])
    places = np.linspace(0, len(followed) - 1, min(KINDS.state_compared, len(followed))).astype(int)
    return [int(followed[place]) for place in places]


def _is_same(result: object, expected: Array) -> bool:
    if not isinstance(result, np.ndarray) or not may_be_same(expected.shape, result.shape):
        return False
    scale = float(np.abs(expected).max(initial=0.0))
    return bool(np.abs(result - expected).max(initial=0.0) <= KINDS.state_tolerance * max(scale, KINDS.state_tolerance))
