"""Fitting a feed to a model's inputs: names, element types, and the batch dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from autoopt.data.dataset import Array, Feed
from autoopt.data.decoder import decoder_of, empty_cache
from autoopt.errors import InputError
from autoopt.model.roles import Dimension, Role, input_roles
from autoopt.model.tensors import by_name

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, NodeArg

_DTYPES: Final[Mapping[str, np.dtype[np.generic]]] = {
    **{name: np.dtype(name) for name in ("bool", "float16", "int8", "int16", "int32", "int64")},
    **{name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
    "float": np.dtype("float32"),
    "double": np.dtype("float64"),
    "string": np.dtype("object"),
}
"""By the names of onnxruntime."""


@dataclass(frozen=True)
class InputSpec:
    """One input of a model."""

    name: str
    type: str
    """The type as onnxruntime writes it, such as `tensor(float)`."""
    shape: tuple[Dimension, ...] | None
    """The dimensions; None if not even their number is known."""

    @property
    def optional(self) -> bool:
        return self.type.startswith("optional(")

    @property
    def element(self) -> str:
        """The element type inside `optional(...)`, `seq(...)` and `tensor(...)`."""
        return self.type.replace("optional(", "").replace("seq(", "").replace("tensor(", "").rstrip(")")

    @property
    def dtype(self) -> np.dtype[np.generic] | None:
        """The numpy type; None if numpy has none."""
        return _DTYPES.get(self.element)

    @property
    def is_float(self) -> bool:
        return self.dtype is not None and self.dtype.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.dtype is not None and self.dtype.kind in "iu"

    @property
    def dims(self) -> tuple[Dimension, ...]:
        """The dimensions; none if not even their number is known."""
        return self.shape or ()

    @property
    def open_axes(self) -> list[int]:
        """The axes whose size is not fixed."""
        return [axis for axis, size in enumerate(self.dims) if not isinstance(size, int)]

    @property
    def fixed_sizes(self) -> tuple[int | None, ...]:
        """The sizes of its dimensions; None for an open one."""
        return tuple(size if isinstance(size, int) else None for size in self.dims)

    def zeros(self) -> Array:
        """The zeros that it takes, as a recurrent state begins; open dimensions have size 1."""
        sizes = [1 if size is None else size for size in self.fixed_sizes]
        return np.zeros(sizes, self.dtype or np.float32)


def specs_of(session: InferenceSession) -> tuple[InputSpec, ...]:
    """The inputs of an onnxruntime session."""
    return tuple(map(_spec, session.get_inputs()))


def output_specs(session: InferenceSession) -> tuple[InputSpec, ...]:
    """The outputs of an onnxruntime session."""
    return tuple(map(_spec, session.get_outputs()))


def _spec(argument: NodeArg) -> InputSpec:
    return InputSpec(argument.name, argument.type, None if argument.shape is None else tuple(argument.shape))


def batch_limit(inputs: Sequence[InputSpec], columns: Mapping[str, Array]) -> int | None:
    """The number of items that one inference may take; None if the model's first dimension is free.

    The limit is 1 if the model has no batch dimension for these columns.
    """
    limits = set()
    for spec in inputs:
        column = columns.get(spec.name)
        if len(columns) == len(inputs) == 1:
            # `fit` passes a single array to a single input, whatever its name.
            column = next(iter(columns.values()))
        if spec.type.startswith(("seq(", "optional(")):
            limits.add(1)
        elif column is None or column.ndim == 0:
            continue
        elif spec.shape is None or column.ndim != len(spec.shape):
            limits.add(1)
        elif isinstance(spec.shape[0], int):
            limits.add(spec.shape[0])
    return min(limits, default=None)


def fit(
    feed: Mapping[str, Array],
    inputs: Sequence[InputSpec],
    given: Iterable[str] = (),
    roles: Mapping[str, Role] | None = None,
) -> Feed:
    """Fit a feed to a model: only the inputs it has, in their element types and ranks.

    A single array goes to a single input, whatever its name, or to the tokens of a decoder with a cache; such a model
    gets an empty cache, a mask of ones and counted positions where the feed has none. An axis of one item is dropped if
    the model has no batch dimension, and added if the model has one more dimension.

    `given` names inputs that come from elsewhere, such as recurrent state. `roles` are those of the inputs, by default
    as their names and shapes tell.

    Raises:
        InputError: An input has no array; the message names the arrays there are.
    """
    elsewhere = set(given)
    needed = [spec for spec in inputs if spec.name not in elsewhere]
    if len(needed) == len(feed) == 1:
        feed = {needed[0].name: next(iter(feed.values()))}
    feed = _with_prompt(feed, needed, roles)
    fitted: Feed = {}
    for spec in needed:
        if spec.name in feed:
            fitted[spec.name] = _fit_one(feed[spec.name], spec)
        elif not spec.optional:
            names = ", ".join(feed) or "nothing"
            raise InputError(f"no data for the model's input {spec.name!r}", remedy=f"the data has: {names}")
    return fitted


def _with_prompt(
    feed: Mapping[str, Array], inputs: Sequence[InputSpec], roles: Mapping[str, Role] | None
) -> Mapping[str, Array]:
    """Add what follows from the tokens of a decoder with a cache and is not in the feed; any other feed as it is."""
    specs = by_name(inputs)
    decoder = None if feed.keys() >= specs.keys() else decoder_of(roles or input_roles(inputs))
    if decoder is None:
        return feed
    if len(feed) == 1:
        feed = {decoder.tokens: next(iter(feed.values()))}
    if decoder.tokens not in feed:
        return feed
    complete = {**feed, decoder.tokens: _fit_one(feed[decoder.tokens], specs[decoder.tokens])}
    batch = len(complete[decoder.tokens])
    missing = {name: spec.dtype for name, spec in specs.items() if name not in feed and spec.dtype is not None}
    for name, axis in decoder.cache.items():
        if name in missing:
            complete[name] = empty_cache(specs[name].dims, axis, batch, missing[name])
    # After the cache, because the mask and the positions count the tokens in it too.
    for name in decoder.derived:
        if name in missing:
            complete[name] = decoder.derive(name, complete, missing[name])
    return complete


def _fit_one(value: Array, spec: InputSpec) -> Array:
    if isinstance(value, list):  # a sequence, which onnxruntime takes as it is
        return value
    array = np.asarray(value)
    if spec.dtype is not None and array.dtype != spec.dtype:
        array = array.astype(spec.dtype)
    if spec.shape is None:
        return array
    rank = len(spec.shape)
    if array.ndim == rank + 1 and array.shape[0] == 1:
        return np.asarray(array[0])
    return array[np.newaxis] if array.ndim == rank - 1 else array
