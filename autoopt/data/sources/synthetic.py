"""Synthetic items from a model's own inputs: shapes, element types, safe ranges; for models without data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.data.fit import Dimension, InputSpec
from autoopt.errors import InputError

SYMBOL_SIZES: Mapping[str, int] = {"batch": 1, "n": 1, "seq": 32, "length": 32, "height": 64, "width": 64, "time": 32}
"""Sizes of symbolic dimensions by a part of their name; the first one is the batch and gets 1, others 16."""


def load(
    model: str,
    items: int = 16,
    seed: int = 0,
    dimensions: Mapping[str, int] | None = None,
    shapes: Mapping[str, list[int]] | None = None,
    ranges: Mapping[str, list[float]] | None = None,
    open_size: int | None = None,
) -> DataSet:
    """`items` random items for the model at that path.

    `dimensions` sizes symbolic dimensions by name, `shapes` whole inputs by name (the batch dimension included),
    `ranges` gives [low, high] by input, `open_size` the size of open dimensions that nothing else sizes. Integers that
    index into a table (Gather) stay below its length; other integers are 0 or 1, floats are standard normal.

    Raises:
        InputError: an input of a kind that cannot be made up (a sequence, a map).
    """
    specs, bounds = read_inputs(model)
    return make(specs, items, seed, dimensions or {}, shapes or {}, ranges or {}, bounds, open_size)


def make(
    specs: Iterable[InputSpec],
    items: int = 16,
    seed: int = 0,
    dimensions: Mapping[str, int] | None = None,
    shapes: Mapping[str, list[int]] | None = None,
    ranges: Mapping[str, list[float]] | None = None,
    bounds: Mapping[str, int] | None = None,
    open_size: int | None = None,
) -> DataSet:
    """Random items for those inputs; complete arrays per item, batch dimension included. Optional ones are left out."""
    rng = np.random.default_rng(seed)
    made: dict[str, list[Array]] = {}
    for spec in specs:
        if spec.optional:
            continue
        if spec.dtype is None or not spec.type.startswith("tensor("):
            raise InputError(f"cannot make up values of {spec.type}", where=f"input {spec.name!r}", remedy="give data")
        shape = _shape(spec, dimensions or {}, shapes or {}, open_size)
        low_high = (ranges or {}).get(spec.name)
        made[spec.name] = [_values(rng, spec, shape, low_high, (bounds or {}).get(spec.name)) for _ in range(items)]
    return DataSet({}, None, made, name="synthetic")


def _shape(
    spec: InputSpec, dimensions: Mapping[str, int], shapes: Mapping[str, list[int]], open_size: int | None
) -> tuple[int, ...]:
    if spec.name in shapes:
        return tuple(shapes[spec.name])
    return tuple(_size(d, i, dimensions, open_size) for i, d in enumerate((1,) if spec.shape is None else spec.shape))


def _size(dimension: Dimension, index: int, dimensions: Mapping[str, int], open_size: int | None) -> int:
    if isinstance(dimension, int) and dimension > 0:
        return dimension
    if isinstance(dimension, str) and dimension in dimensions:
        return dimensions[dimension]
    if index == 0:
        return 1
    if open_size is not None:
        return open_size
    name = str(dimension or "").lower()
    return next((size for part, size in SYMBOL_SIZES.items() if part in name and len(part) > 1), 16)


def _values(
    rng: np.random.Generator, spec: InputSpec, shape: tuple[int, ...], given: list[float] | None, bound: int | None
) -> Array:
    kind = np.dtype(spec.dtype)
    if kind.kind == "O":
        return np.array([f"text {n}" for n in rng.integers(0, 100, int(np.prod(shape)))], object).reshape(shape)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        low, high = (int(given[0]), int(given[1]) + 1) if given else (0, bound or 2)
        made: Array = rng.integers(low, high, shape).astype(kind)
        return made
    floats: Array = rng.standard_normal(shape) if given is None else rng.uniform(given[0], given[1], shape)
    return floats.astype(kind)


def read_inputs(model: str) -> tuple[tuple[InputSpec, ...], dict[str, int]]:
    """The inputs of the model at that path, and for integer inputs that index into a table how long it is; of that
    nothing where onnx is not installed."""
    try:
        import onnx
    except ImportError:
        return _inputs_of_session(model), {}
    graph = onnx.load(model, load_external_data=False).graph
    constants = {t.name: tuple(t.dims) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = tuple(node.attribute[0].t.dims)
    specs = tuple(_spec(value) for value in graph.input if value.name not in constants)
    return specs, _bounds(graph, {s.name for s in specs}, constants)


def _inputs_of_session(model: str) -> tuple[InputSpec, ...]:
    import onnxruntime

    inputs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()
    return tuple(InputSpec(i.name, i.type, None if i.shape is None else tuple(i.shape)) for i in inputs)


def _spec(value: Any) -> InputSpec:
    import onnx

    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return InputSpec(value.name, f"{kind.removesuffix('_type')}()" if kind else "unknown()", None)
    tensor = value.type.tensor_type
    element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    dims = [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim]
    return InputSpec(value.name, f"tensor({element})", tuple(dims) if tensor.HasField("shape") else None)


_PASSING = ("Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Transpose", "Expand", "Slice")


def _bounds(graph: Any, inputs: set[str], constants: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Follows each input through nodes that keep its values to Gather nodes with a constant table."""
    origin = {name: name for name in inputs}
    bounds: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _PASSING and node.input and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        elif node.op_type in ("Gather", "GatherElements") and node.input[0] in constants and node.input[1] in origin:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            dims = constants[node.input[0]]
            source = origin[node.input[1]]
            if dims:
                bounds[source] = min(bounds.get(source, dims[axis]), dims[axis])
    return bounds
