"""Synthetic items from a model's own inputs: shapes, element types, safe ranges; for models without data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.data.fit import Dimension, InputSpec, specs_of
from autoopt.errors import InputError

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

SYMBOL_SIZES: Final[Mapping[str, int]] = {"batch": 1, "seq": 32, "length": 32, "height": 64, "width": 64, "time": 32}
"""Sizes of symbolic dimensions by a part of their name."""
OTHER_SIZE: Final = 16
"""The size of other open dimensions."""
_KEEP_VALUES: Final = frozenset(
    ("Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Transpose", "Expand", "Slice")
)
"""Operators whose output holds only values of their first input."""


def load(  # noqa: PLR0913  one argument for each parameter in dag.yaml
    model: str,
    *,
    items: int = 16,
    seed: int = 0,
    dimensions: Mapping[str, int] | None = None,
    shapes: Mapping[str, list[int]] | None = None,
    ranges: Mapping[str, list[float]] | None = None,
    open_size: int | None = None,
) -> DataSet:
    """Make random items for a model, complete with batch dimension. Optional inputs are left out.

    Integers that index into a table (Gather) stay below its length. Other integers are 0 or 1, floats are standard
    normal.

    Args:
        model: Path of the model.
        items: Number of items.
        seed: Seed of the random numbers.
        dimensions: Sizes of symbolic dimensions by name.
        shapes: Shapes of inputs by name, including the batch dimension.
        ranges: [low, high] by input.
        open_size: Size of open dimensions that nothing else sizes.

    Raises:
        InputError: An input is a sequence or a map, whose values cannot be made up.
    """
    specs, table_lengths = read_inputs(model)
    sizes = _Sizes(dimensions or {}, shapes or {}, open_size)
    rng = np.random.default_rng(seed)
    arrays: dict[str, list[Array]] = {}
    for spec in specs:
        if spec.optional:
            continue
        if spec.dtype is None or not spec.type.startswith("tensor("):
            raise InputError(f"cannot make up values of {spec.type}", where=f"input {spec.name!r}", remedy="give data")
        shape = sizes.shape(spec)
        limits = (ranges or {}).get(spec.name)
        if limits is None:
            limits = _default_limits(spec.dtype, table_lengths.get(spec.name))
        arrays[spec.name] = [_values(rng, spec.dtype, shape, limits) for _ in range(items)]
    return DataSet({}, None, arrays, name="synthetic")


@dataclass(frozen=True)
class _Sizes:
    """Sizes for open dimensions."""

    dimensions: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, list[int]] = field(default_factory=dict)
    open_size: int | None = None

    def shape(self, spec: InputSpec) -> tuple[int, ...]:
        if spec.name in self.shapes:
            return tuple(self.shapes[spec.name])
        if spec.shape is None:
            return (1,)
        return tuple(self._size(dimension, axis) for axis, dimension in enumerate(spec.shape))

    def _size(self, dimension: Dimension, axis: int) -> int:
        if isinstance(dimension, int) and dimension > 0:
            return dimension
        if isinstance(dimension, str) and dimension in self.dimensions:
            return self.dimensions[dimension]
        if axis == 0:
            return 1  # the batch
        if self.open_size is not None:
            return self.open_size
        name = str(dimension or "").lower()
        return next((size for part, size in SYMBOL_SIZES.items() if part in name), OTHER_SIZE)


def _default_limits(dtype: np.dtype[np.generic], table_length: int | None) -> list[float] | None:
    """Limits of integers; None for other types."""
    if dtype.kind not in "iu":
        return None
    return [0, (table_length or 2) - 1]


def _values(
    rng: np.random.Generator, dtype: np.dtype[np.generic], shape: tuple[int, ...], limits: list[float] | None
) -> Array:
    if dtype.kind == "O":
        texts = [f"text {number}" for number in rng.integers(0, 100, int(np.prod(shape)))]
        return np.array(texts, object).reshape(shape)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if limits is None:
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    low, high = limits
    if dtype.kind in "iu":
        return np.asarray(rng.integers(int(low), int(high) + 1, shape)).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def read_inputs(model: str) -> tuple[tuple[InputSpec, ...], dict[str, int]]:
    """Read the inputs of a model.

    Returns:
        The inputs, and the length of the table for integer inputs that index into one. Without onnx, in an interpreter
        that only measures, no table is found.
    """
    try:
        import onnx
    except ImportError:
        import onnxruntime

        return specs_of(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])), {}
    graph = onnx.load(model, load_external_data=False).graph
    constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = tuple(node.attribute[0].t.dims)
    specs = tuple(_spec(value) for value in graph.input if value.name not in constants)
    return specs, _table_lengths(graph, {spec.name for spec in specs}, constants)


def _spec(value: ValueInfoProto) -> InputSpec:
    import onnx

    kind = value.type.WhichOneof("value")
    if kind is None:
        return InputSpec(value.name, "unknown()", None)
    if kind != "tensor_type":
        return InputSpec(value.name, f"{kind.removesuffix('_type')}()", None)
    tensor = value.type.tensor_type
    element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return InputSpec(value.name, f"tensor({element})", None)
    # Of a number and a symbol at most one is set; both count as unknown if neither is.
    shape = tuple(getattr(dimension, dimension.WhichOneof("value") or "", None) for dimension in tensor.shape.dim)
    return InputSpec(value.name, f"tensor({element})", shape)


def _table_lengths(graph: GraphProto, inputs: set[str], constants: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Follow each input through nodes that keep its values to Gather nodes with a constant table."""
    origins = dict(zip(inputs, inputs, strict=True))
    lengths: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _KEEP_VALUES and node.input and node.input[0] in origins:
            origins[node.output[0]] = origins[node.input[0]]
        if node.op_type not in ("Gather", "GatherElements"):
            continue
        table, indices = constants.get(node.input[0]), origins.get(node.input[1])
        if table and indices is not None:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            lengths[indices] = min(lengths.get(indices, table[axis]), table[axis])
    return lengths
