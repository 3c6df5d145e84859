"""Fitting a feed to a model's inputs: names, element types, and whether the model has a batch dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autoopt.data.dataset import Feed
from autoopt.errors import InputError

Dimension: TypeAlias = int | str | None

_DTYPES: Mapping[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "string": np.object_,
    "bool": np.bool_,
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class InputSpec:
    """One input of a model. `type` is as onnxruntime writes it (`tensor(float)`); `shape` is None where unknown,
    a dimension is a number, a symbol or None."""

    name: str
    type: str
    shape: tuple[Dimension, ...] | None

    @property
    def optional(self) -> bool:
        return self.type.startswith("optional(")

    @property
    def element(self) -> str:
        """The element type inside `optional(...)`, `seq(...)` and `tensor(...)`."""
        return self.type.replace("optional(", "").replace("seq(", "").replace("tensor(", "").rstrip(")")

    @property
    def dtype(self) -> Any:
        """The numpy type, or None where numpy has none."""
        return _DTYPES.get(self.element)


def specs_of(session: Any) -> tuple[InputSpec, ...]:
    """The inputs of an onnxruntime session."""
    return tuple(InputSpec(i.name, i.type, None if i.shape is None else tuple(i.shape)) for i in session.get_inputs())


def batch_limit(inputs: Sequence[InputSpec], columns: Mapping[str, Any]) -> int | None:
    """How many items of `columns` one inference may take: a fixed number (1 where the model has no batch dimension
    for them), or None where the first dimension is free."""
    limits: set[int] = set()
    for spec in inputs:
        column = columns.get(spec.name, next(iter(columns.values())) if len(columns) == len(inputs) == 1 else None)
        if spec.type.startswith(("seq(", "optional(")):
            limits.add(1)
        elif column is None or column.ndim == 0:
            continue
        elif spec.shape is None or column.ndim != len(spec.shape):
            limits.add(1)
        elif isinstance(spec.shape[0], int):
            limits.add(spec.shape[0])
    return min(limits) if limits else None


def fit(feed: Mapping[str, Any], inputs: Sequence[InputSpec], given: Iterable[str] = ()) -> Feed:
    """`feed` for a model with those `inputs`: only what it takes, in its element types and ranks.

    A single array goes to a single input whatever its name. An axis of one item is dropped where the model has no
    batch dimension, and added where it has one more. `given` names inputs that come from elsewhere (fed-back state).

    Raises:
        InputError: an input without an array; names what there is.
    """
    elsewhere = set(given)
    wanted = [i for i in inputs if i.name not in elsewhere]
    if len(wanted) == 1 and len(feed) == 1 and wanted[0].name not in feed:
        feed = {wanted[0].name: next(iter(feed.values()))}
    fitted: Feed = {}
    for spec in wanted:
        if spec.name in feed:
            fitted[spec.name] = _fit_one(feed[spec.name], spec)
        elif not spec.optional:
            raise InputError(
                f"no data for the model's input {spec.name!r}", remedy=f"the data has: {', '.join(feed) or 'nothing'}"
            )
    return fitted


def _fit_one(value: Any, spec: InputSpec) -> Any:
    if isinstance(value, list):
        return value
    array = np.asarray(value)
    if spec.dtype is not None and array.dtype != spec.dtype:
        array = array.astype(spec.dtype)
    if spec.shape is None:
        return array
    rank = len(spec.shape)
    if array.ndim == rank + 1 and array.shape[0] == 1:
        return array[0]
    return array[np.newaxis] if array.ndim == rank - 1 else array
