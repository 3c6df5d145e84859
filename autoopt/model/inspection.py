"""What planning may know of a model: frozen, JSON, found out by a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

Dim: TypeAlias = int | str | None
"""A fixed size, the name of a symbolic one, or None where nothing is said."""


@dataclass(frozen=True)
class ValueSpec:
    """An input or output. `dtype` as numpy names it (`float32`, `str`), or the kind of a non-tensor (`sequence`);
    `shape` is None where not even the rank is known."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None


@dataclass(frozen=True)
class Inspection:
    """A model's interface and content. Names are the model's own: clean them (`errors.one_line`) to show them."""

    inputs: tuple[ValueSpec, ...]
    """Without initializers that are listed as inputs too."""
    outputs: tuple[ValueSpec, ...]
    opsets: Mapping[str, int]
    """Version by domain; the default domain is `""`."""
    ir_version: int
    op_counts: Mapping[str, int]
    """Nodes by operator (`Conv`, `com.microsoft::Gelu`), subgraphs and model-local functions included."""
    parameters: int
    """Elements of all weights: initializers and constants."""
    bytes: int
    """Of the model and its external data."""
    has_subgraphs: bool = False
    duplicate_names: bool = False
    """Whether two nodes have the same name (onnxruntime refuses that)."""
    dynamic_dims: tuple[str, ...] = ()
    """Symbolic sizes of inputs by name, `input[axis]` where it has none."""
    external_data: bool = False
    functions: int = 0
    """Number of model-local functions."""
    weight_dtypes: Mapping[str, int] = field(default_factory=dict)
    """Elements of weights by type."""

    @property
    def ops(self) -> frozenset[str]:
        """The operators that occur."""
        return frozenset(self.op_counts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Inspection:
        fields = dict(data)
        for side in ("inputs", "outputs"):
            fields[side] = tuple(
                ValueSpec(v["name"], v["dtype"], None if v["shape"] is None else tuple(v["shape"])) for v in data[side]
            )
        return Inspection(**{**fields, "dynamic_dims": tuple(data["dynamic_dims"])})
