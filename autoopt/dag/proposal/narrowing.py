"""A narrower contract that the data allow: inputs that never change, and dimensions that always have one size."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from typing import Final

from autoopt.data.decoder import decoder_of
from autoopt.data.description import Column, DataDescription
from autoopt.errors import one_line
from autoopt.json_codec import JsonValue
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.model.roles import Dimension

MAX_TEXT: Final = 40
"""Characters of a constant that are shown."""
MAX_INPUTS: Final = 5
"""Inputs that are shown."""


@dataclass(frozen=True)
class Narrowing:
    """Parameters of the pass `specialize_inputs`; empty if the data use all that the model accepts."""

    values: Mapping[str, JsonValue] = field(default_factory=dict)
    """The value of each input that never changes, in nested lists."""
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    """The sizes of each other input that has open dimensions; None where they stay open."""

    def __bool__(self) -> bool:
        return bool(self.values or self.shapes)

    @property
    def text(self) -> str:
        """The contract in words; only the first inputs of many, as `session.json` has all."""
        parts = [f"{one_line(name)} is always {_short(value)}" for name, value in self.values.items()]
        for name, shape in self.shapes.items():
            sizes = ", ".join("?" if size is None else str(size) for size in shape)
            parts.append(f"{one_line(name)} has shape [{sizes}]")
        others = len(parts) - MAX_INPUTS
        if others > 1:
            parts[MAX_INPUTS:] = [f"and so on for {others} more inputs"]
        return ", ".join(parts)


@dataclass(frozen=True)
class _Input:
    """One input of the model with what the data say about it."""

    name: str
    shape: tuple[Dimension, ...]
    """As the model has it."""
    sizes: tuple[int | None, ...]
    """As the data have it."""
    batched: bool
    """True if axis 0 counts items."""
    value: JsonValue
    """The value for one inference, if every item has the same."""
    whole: bool = False
    """True if each item of the data is a whole input, such as a recurrent state: items cannot be joined to a batch."""

    def of_one(self) -> _Input:
        """The input in an inference of one item."""
        if not self.batched:
            return self
        return replace(self, sizes=(1, *self.sizes[1:]))


def narrowing_of(
    inspection: Inspection, descriptions: Sequence[DataDescription], fed_back: Collection[str] = (), batch_size: int = 0
) -> Narrowing:
    """Find the narrower contract that all of these data sets meet.

    A batch dimension stays open, unless an input that never changes has one too, or the model has recurrent state, or
    input whose items have no batch: it is then fixed at one item. Nothing is fixed for a decoder with a cache: a prompt
    has many tokens and no cache, each further token is one with a cache that grows. Inputs that take the recurrent
    state are `fed_back`.
    """
    has_made_up = any(description.made_up for description in descriptions)
    if not descriptions or has_made_up or decoder_of(inspection.input_roles) is not None:
        return Narrowing()
    described = [_described(spec, inspection, descriptions, fed_back) for spec in inspection.inputs]
    inputs = list(chain.from_iterable(described))
    shapes = _shapes(inspection, inputs)
    values = _constants(inputs, shapes, batch_size)
    takes_one = bool(fed_back) or any(item.whole for item in inputs)  # such as a model with state
    if takes_one or any(shapes[name][:1] == (None,) for name in values):
        shapes = _shapes(inspection, [item.of_one() for item in inputs])
    return Narrowing(values, _narrower_shapes(inspection, values, shapes))


def _described(
    spec: ValueSpec, inspection: Inspection, descriptions: Sequence[DataDescription], fed_back: Collection[str]
) -> Iterator[_Input]:
    """The input with what all data sets say about it; nothing if one of them does not describe it."""
    if spec.shape is None:
        return
    if spec.name in fed_back:
        # Measurements start it with zeros, one along each open dimension.
        sizes = tuple(dim if isinstance(dim, int) else 1 for dim in spec.shape)
        yield _Input(spec.name, spec.shape, sizes, batched=False, value=None)
        return
    items: list[_Input] = []
    for description in descriptions:
        columns = description.columns
        column = columns.get(spec.name)
        if len(inspection.inputs) == len(columns) == 1:
            # Data of one array go to a single input, whatever its name.
            column = next(iter(columns.values()))
        item = None if column is None else _fitted(spec, spec.shape, column)
        if item is None:
            return
        items.append(item)
    yield reduce(_both, items)


def _fitted(spec: ValueSpec, shape: tuple[Dimension, ...], column: Column) -> _Input | None:
    """The input with what one data set says about it; None if the ranks do not fit."""
    sizes: tuple[int | None, ...] = tuple(
        None if axis in column.open_axes else size for axis, size in enumerate(column.shape)
    )
    value, batched = column.constant, False
    if column.stacked:
        sizes = sizes[1:]
        batched = len(shape) == len(sizes) + 1
    if batched:
        sizes = (None, *sizes)
        value = None if value is None else [value]
    if len(sizes) != len(shape):
        return None
    whole = column.stacked and not batched and value is None and bool(sizes)
    return _Input(spec.name, shape, sizes, batched, value, whole)


def _both(one: _Input, other: _Input) -> _Input:
    """The sizes and the value that two data sets agree on."""
    sizes = tuple(a if a == b else None for a, b in zip(one.sizes, other.sizes, strict=True))
    value = one.value if one.value == other.value else None
    whole = one.whole or other.whole
    return replace(one, sizes=sizes, batched=one.batched or other.batched, value=value, whole=whole)


def _shapes(inspection: Inspection, inputs: Sequence[_Input]) -> dict[str, tuple[int | None, ...]]:
    """The sizes of every input of the model; None where neither the model nor the data fix them."""
    sizes = {item.name: item.sizes for item in inputs}
    # The size of each named dimension; None for one that has several.
    symbols: dict[str, int | None] = {}
    for item in inputs:
        for dim, size in zip(item.shape, item.sizes, strict=True):
            if isinstance(dim, str) and size is not None:
                symbols[dim] = size if symbols.get(dim, size) == size else None
    return {spec.name: _merged(spec.dims, sizes.get(spec.name, ()), symbols) for spec in inspection.inputs}


def _merged(
    shape: Sequence[Dimension], known: Sequence[int | None], symbols: Mapping[str, int | None]
) -> tuple[int | None, ...]:
    """The sizes of an input: the model's own, then the data's, then the sizes of dimensions with the same name."""
    merged: list[int | None] = []
    for axis, dim in enumerate(shape):
        size = known[axis] if axis < len(known) else None
        if isinstance(dim, int):
            size = dim
        elif isinstance(dim, str):
            size = symbols.get(dim)
        merged.append(size)
    return tuple(merged)


def _constants(
    inputs: Sequence[_Input], shapes: Mapping[str, tuple[int | None, ...]], batch_size: int
) -> dict[str, JsonValue]:
    """Values by name of the inputs that never change; none if no input would be left."""
    values: dict[str, JsonValue] = {}
    for item in inputs:
        # The value is that of a single item.
        several = item.batched and (batch_size > 1 or shapes[item.name][0] not in (None, 1))
        if item.value is not None and not several:
            values[item.name] = item.value
    if len(values) == len(shapes):
        return {}
    return values


def _short(value: JsonValue) -> str:
    """A value in at most a few characters."""
    text = json.dumps(value)
    if len(text) <= MAX_TEXT:
        return text
    numbers = list(_numbers(value))
    if all(number == numbers[0] for number in numbers):
        return f"{json.dumps(numbers[0])} (all {len(numbers)} values)"
    return f"{text[:MAX_TEXT]}..."


def _numbers(value: JsonValue) -> Iterator[JsonValue]:
    """The numbers in nested lists."""
    if not isinstance(value, (list, tuple)):
        yield value
        return
    for item in value:
        yield from _numbers(item)


def _narrower_shapes(
    inspection: Inspection, values: Mapping[str, JsonValue], shapes: Mapping[str, tuple[int | None, ...]]
) -> dict[str, tuple[int | None, ...]]:
    """The shapes that fix a dimension which the model leaves open, of the inputs without a fixed value."""
    narrower = {}
    for spec in inspection.inputs:
        if spec.name in values:
            continue
        shape = shapes[spec.name]
        if any(size is not None and not isinstance(dim, int) for size, dim in zip(shape, spec.dims, strict=True)):
            narrower[spec.name] = shape
    return narrower
