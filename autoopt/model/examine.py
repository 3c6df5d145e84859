"""Making an `Inspection` of a parsed model. For workers only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoopt.model import tensors as walk
from autoopt.model.files import bytes_in
from autoopt.model.inspection import Dim, Inspection, ValueSpec

if TYPE_CHECKING:
    from onnx import ModelProto


def inspect_model(model: ModelProto, path: Path) -> Inspection:
    """What planning may know of the model in `path`. Reads the graph only, never the weights, and checks nothing."""
    graphs = list(walk.graphs(model))
    nodes = list(walk.nodes(model))
    initializers = {t.name for t in model.graph.initializer} | {s.values.name for s in model.graph.sparse_initializer}
    inputs = tuple(_value(v) for v in model.graph.input if v.name not in initializers)
    dtypes: Counter[str] = Counter()
    for tensor in walk.tensors(model):
        dtypes[_dtype(tensor.data_type)] += max(0, math.prod(tensor.dims))
    return Inspection(
        inputs=inputs,
        outputs=tuple(_value(v) for v in model.graph.output),
        opsets={_domain(o.domain): o.version for o in model.opset_import},
        ir_version=model.ir_version,
        op_counts=dict(sorted(Counter(_op(n) for n in nodes).items())),
        parameters=sum(dtypes.values()),
        bytes=bytes_in(path.parent) if path.name == "model.onnx" else path.stat().st_size,
        has_subgraphs=len(graphs) > 1,
        duplicate_names=any(_has_duplicates(graph.node) for graph in graphs),
        dynamic_dims=tuple(dict.fromkeys(_dynamic(inputs))),
        external_data=any(t.data_location == t.EXTERNAL for t in walk.tensors(model)),
        functions=len(model.functions),
        weight_dtypes=dict(sorted(dtypes.items())),
    )


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _op(node: Any) -> str:
    domain = _domain(node.domain)
    return f"{domain}::{node.op_type}" if domain else str(node.op_type)


def _dtype(code: int) -> str:
    """As numpy names it: `float32`, `bfloat16`, `str`."""
    from onnx import TensorProto

    try:
        name: str = TensorProto.DataType.Name(code).lower()
    except ValueError:
        return f"type{code}"
    return {"float": "float32", "double": "float64", "string": "str"}.get(name, name)


def _value(value: Any) -> ValueSpec:
    kind = value.type.WhichOneof("value") or "undefined"
    if kind != "tensor_type":
        return ValueSpec(value.name, kind.removesuffix("_type"), None)
    tensor = value.type.tensor_type
    shape = tuple(_dim(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
    return ValueSpec(value.name, _dtype(tensor.elem_type), shape)


def _dim(dim: Any) -> Dim:
    which = dim.WhichOneof("value")
    if which == "dim_value":
        return int(dim.dim_value)
    return str(dim.dim_param) or None if which == "dim_param" else None


def _dynamic(inputs: tuple[ValueSpec, ...]) -> Iterator[str]:
    for value in inputs:
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int):
                yield dim or f"{value.name}[{axis}]"


def _has_duplicates(nodes: Any) -> bool:
    names = [node.name for node in nodes if node.name]
    return len(names) != len(set(names))
