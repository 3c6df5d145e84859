"""Synthetic feeds made from a model's own inputs, for the quick equivalence check of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, ValueInfoProto


SIZES: Final = ((2, 8), (1, 8), (1, 1), (2, 2), (1, 64), (1, 224))
"""What open dimensions are tried with, in order: (the first one of an input, all others)."""


_THROUGH: Final = frozenset({"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Slice"})


_LARGEST: Final = 1 << 26
"""Most elements of one input."""


def candidates(model: ModelProto, narrower: ModelProto | None = None, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
    """Feeds for `model`, one for each of `SIZES` (one only where no dimension is open).

    `narrower` is another version of the model whose inputs may have fixed some dimensions; those are taken. Floats
    are normal, integers stay below the rows of the table they index (else 0 or 1), texts are words. The same
    arguments give the same feeds.

    Raises:
        ValueError: an input is neither a tensor nor of a known type.
    """
    inputs = _real_inputs(model)
    fixed = {value.name: _dims(value) for value in _real_inputs(narrower)} if narrower is not None else {}
    limits = _index_limits(model)
    seen = set()
    for first, other in SIZES:
        shapes = {v.name: _shape(_merge(_dims(v), fixed.get(v.name)), first, other) for v in inputs}
        if tuple(shapes.values()) in seen:
            continue
        seen.add(tuple(shapes.values()))
        yield {v.name: _array(v, shapes[v.name], limits.get(v.name, 2), seed + i) for i, v in enumerate(inputs)}


def _real_inputs(model: ModelProto) -> list[ValueInfoProto]:
    initialized = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in initialized]


def _dims(value: ValueInfoProto) -> list[int | str]:
    if not value.type.HasField("tensor_type"):
        raise ValueError(f"input {value.name!r} is not a tensor")
    return [d.dim_value if d.dim_value > 0 else str(d.dim_param) for d in value.type.tensor_type.shape.dim]


def _merge(dims: list[int | str], narrower: list[int | str] | None) -> list[int | str]:
    if narrower is None or len(narrower) != len(dims):
        return dims
    return [n if isinstance(n, int) else d for d, n in zip(dims, narrower, strict=True)]


def _shape(dims: list[int | str], first: int, other: int) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else (first if i == 0 else other) for i, d in enumerate(dims))


def _array(value: ValueInfoProto, shape: tuple[int, ...], limit: int, seed: int) -> np.ndarray:
    import numpy as np
    from onnx import TensorProto, helper

    if np.prod(shape, dtype=np.int64) > _LARGEST:
        raise ValueError(f"input {value.name!r} of shape {shape} is too large for a quick check")
    kind = value.type.tensor_type.elem_type
    rng = np.random.default_rng(seed)
    if kind == TensorProto.STRING:
        return rng.choice(np.array(["a", "the", "zero", "0", "red fox"], dtype=object), size=shape)
    if kind == TensorProto.BOOL:
        return rng.integers(0, 2, size=shape).astype(bool)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, min(limit, np.iinfo(dtype).max), size=shape).astype(dtype)
    return rng.standard_normal(size=shape).astype(dtype)


def _index_limits(model: ModelProto) -> dict[str, int]:
    """For inputs that index a constant table: the table's rows. Looks through casts and reshapes."""
    tables = {t.name: tuple(t.dims) for t in model.graph.initializer}
    origin: dict[str, str] = {v.name: v.name for v in model.graph.input}
    limits: dict[str, int] = {}
    wide: set[str] = set()
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            tables[node.output[0]] = tuple(node.attribute[0].t.dims)
        if node.op_type in _THROUGH and node.input and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in tables and node.input[1] in origin:
            source = origin[node.input[1]]
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            rows = tables[node.input[0]][axis] if tables[node.input[0]] else 1
            limits[source] = min(limits.get(source, rows), rows)
        elif node.op_type in ("OneHot", "QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulInteger"):
            wide.update(origin[name] for name in node.input[:1] if name in origin)
    for name in origin.values():
        if name not in limits and (name in wide or _is_data(model, name)):
            limits[name] = 256
    return {name: max(1, rows) for name, rows in limits.items()}


def _is_data(model: ModelProto, name: str) -> bool:
    """Whether an input holds bytes (pixels, codes): any of their values is valid."""
    from onnx import TensorProto

    value: Any = next((v for v in model.graph.input if v.name == name), None)
    return value is not None and value.type.tensor_type.elem_type in (TensorProto.UINT8, TensorProto.INT8)


def cast_to(feeds: Mapping[str, np.ndarray], model: ModelProto) -> dict[str, np.ndarray] | None:
    """`feeds` in the types that `model` wants; None where names or shapes do not fit its inputs."""
    import numpy as np
    from onnx import TensorProto, helper

    wanted = _real_inputs(model)
    if {v.name for v in wanted} != set(feeds):
        return None
    out = {}
    for value in wanted:
        array = feeds[value.name]
        dims = _dims(value)
        if len(dims) != array.ndim or any(
            isinstance(d, int) and d != s for d, s in zip(dims, array.shape, strict=True)
        ):
            return None
        kind = value.type.tensor_type.elem_type
        is_text = kind == TensorProto.STRING
        out[value.name] = array if is_text else np.asarray(array).astype(helper.tensor_dtype_to_np_dtype(kind))
    return out
