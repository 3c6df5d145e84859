"""float16 conversion by library converters, with their limits worked around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoopt.passes.onnx_tools.graphs import (
    forget_weight_types,
    free_weights,
    graphs,
    name_nodes,
    nodes,
    nodes_of,
    sort,
)
from autoopt.passes.onnx_tools.quiet import quiet

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def to_float16(
    model: ModelProto, impl: str, op_types: list[str], names: list[str], **options: Any
) -> ModelProto | None:
    """The model in float16 but for nodes of `op_types` and `names`, or None where nothing would compute in it.

    `model` is changed. `options` are those of the converter.
    """
    converter = _converter(impl)
    if impl == "occ":
        options["check_fp16_ready"] = False
    kept = prepare(model)
    own = {node.name for node in nodes(model)}
    with quiet():
        converted = converter.convert_float_to_float16(
            model,
            op_block_list=[*converter.DEFAULT_OP_BLOCK_LIST, "Celu", *op_types],
            node_block_list=[*names, *kept],
            **options,
        )
    _drop_repeats(converted.graph)
    _skip_round_trips(converted.graph, own)
    forget_weight_types(converted)
    return sort(converted) if computes_float16(converted) else None


def _skip_round_trips(graph: GraphProto, own: set[str]) -> None:
    """Let float32 nodes read what float32 nodes made, in place: the converters cast it to float16 and back between
    them. Casts of the model's `own`, by name, stay."""
    from onnx import TensorProto

    casts = {n.output[0]: n for n in graph.node if n.op_type == "Cast" and n.name not in own}

    def source(name: str) -> str:
        back = casts.get(name)
        there = casts.get(back.input[0]) if back is not None else None
        if (
            there is None
            or back is None
            or (back.attribute[0].i, there.attribute[0].i)
            != (
                TensorProto.FLOAT,
                TensorProto.FLOAT16,
            )
        ):
            return name
        return str(there.input[0])

    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in casts:
                node.input[index] = source(name)
    while unread := _unread(graph, own):
        for node in unread:
            graph.node.remove(node)


def _unread(graph: GraphProto, own: set[str]) -> list[NodeProto]:
    """Nodes that are not the model's `own` and whose output nobody reads."""
    read = {name for node in nodes_of(graph) for name in node.input} | {value.name for value in graph.output}
    return [node for node in graph.node if node.name not in own and read.isdisjoint(node.output)]


def _drop_repeats(graph: GraphProto) -> None:
    """Remove nodes whose outputs an earlier node makes, in place: the `ort` converter repeats its casts."""
    seen: set[str] = set()
    kept = []
    for node in graph.node:
        if not seen.issuperset(node.output):
            kept.append(node)
        seen.update(node.output)
    if len(kept) < len(graph.node):
        kept = [type(node).FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(kept)


def prepare(model: ModelProto) -> list[str]:
    """Names of the nodes that the converters must leave alone, after working round their limits, in place.

    A cast to float32 must stay: they change the type of its output and not its `to`. An output of the model that
    nodes read too must be read from behind an Identity: they put a cast between it and its producer only. They tell
    nodes apart by name, do not know constants given as plain numbers, and convert a weight that is an input too only
    half.
    """
    from onnx import TensorProto

    name_nodes(model)
    free_weights(model)
    kept = []
    for node in nodes(model):
        if node.op_type == "Cast" and any(a.i == TensorProto.FLOAT for a in node.attribute):
            kept.append(node.name)
        elif node.op_type == "Constant":
            _as_tensor(node)
    outputs = {value.name for value in model.graph.output}
    for name in sorted(outputs & {name for node in model.graph.node for name in node.input}):
        _detach(model.graph, name)
    return kept


def _as_tensor(node: NodeProto) -> None:
    """Turn `value_float` and `value_floats` of a Constant into a tensor, in place."""
    import numpy as np
    from onnx import helper, numpy_helper

    for attribute in list(node.attribute):
        if attribute.name in ("value_float", "value_floats"):
            given = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            del node.attribute[:]
            node.attribute.append(
                helper.make_attribute("value", numpy_helper.from_array(np.asarray(given, np.float32)))
            )


def _detach(graph: GraphProto, name: str) -> None:
    """Give the graph output `name` an Identity of its own; its producer and readers use another name."""
    inner = f"{name}/inner"
    for node in graph.node:
        for names in (node.input, node.output):
            for index, given in enumerate(names):
                if given == name:
                    names[index] = inner
    graph.node.add(op_type="Identity", input=[inner], output=[name], name=f"{name}/identity")


def _converter(impl: str) -> Any:
    if impl == "ort":
        from onnxruntime.transformers import float16
    else:
        from onnxconverter_common import float16
    return float16


def has_float32(graph: GraphProto) -> bool:
    """Whether a weight, constant or input anywhere in the graph is float32."""
    from onnx import TensorProto

    for inner in graphs(graph):
        if any(tensor.data_type == TensorProto.FLOAT for tensor in inner.initializer):
            return True
        for node in inner.node:
            if any(a.HasField("t") and a.t.data_type == TensorProto.FLOAT for a in node.attribute):
                return True
    return any(value.type.tensor_type.elem_type == TensorProto.FLOAT for value in graph.input)


def computes_float16(model: ModelProto) -> bool:
    """Whether anything but a cast reads a float16 tensor."""
    from onnx import TensorProto

    half = {t.name for graph in graphs(model.graph) for t in graph.initializer if t.data_type == TensorProto.FLOAT16}
    for node in nodes(model):
        if node.op_type == "Cast" and any(a.i == TensorProto.FLOAT16 for a in node.attribute):
            half.update(node.output)
    return any(node.op_type != "Cast" and half.intersection(node.input) for node in nodes(model))
