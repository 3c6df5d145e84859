"""Walking and editing ONNX graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from autoopt.passes.base import Refused

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and every graph inside its nodes' attributes, outermost first."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)
            for inner in attribute.graphs:
                yield from graphs(inner)


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """All nodes, those of subgraphs too."""
    return nodes_of(model.graph)


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes of a graph and of the graphs inside it."""
    for inner in graphs(graph):
        yield from inner.node


def op_counts(model: ModelProto) -> Counter[str]:
    """How often each operator occurs, subgraphs included; keys `Conv` or `domain::Op`."""
    return Counter(op_key(node) for node in nodes(model))


def op_key(node: NodeProto) -> str:
    """`Conv`, or `domain::Op` outside the default domain."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def gained(before: Counter[str], after: ModelProto, ops: Iterable[str]) -> bool:
    """Whether `after` has more nodes of any of `ops` (type names of any domain) than `before` counted."""
    wanted = set(ops)
    now = op_counts(after)
    return any(now[key] > before[key] for key in now if key.rpartition("::")[2] in wanted)


def constants(model: ModelProto) -> frozenset[str]:
    """Names of main-graph tensors with a fixed value: initializers and outputs of Constant nodes."""
    made = {output for node in model.graph.node if node.op_type == "Constant" for output in node.output}
    return frozenset(made | {tensor.name for tensor in model.graph.initializer})


def name_nodes(model: ModelProto) -> None:
    """Give every node a name of its own, in place; libraries that tell nodes apart by name lose unnamed ones."""
    taken = {node.name for node in nodes(model)}
    seen: set[str] = set()
    for number, node in enumerate(nodes(model)):
        name = node.name or f"{node.op_type}_{number}"
        while name in seen or (name in taken and name != node.name):
            name += "_"
        node.name = name
        seen.add(name)


def free_weights(model: ModelProto) -> None:
    """Take initializers out of the model's inputs, in place, as IR version 4 and above allow it."""
    weights = {tensor.name for tensor in model.graph.initializer}
    kept = [type(v).FromString(v.SerializeToString()) for v in model.graph.input if v.name not in weights]
    if len(kept) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, 4)


def forget_weight_types(model: ModelProto) -> None:
    """Drop inferred types of initializers, in place; their own shape says it all.

    Converters change a weight and leave its inferred type behind, which then contradicts it: the quantiser transposes
    that of a `Gemm(transB=1)`, the float16 converter changes its type. PyTorch's exporter writes such types.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.value_info if value.name not in weights]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)


def has_subgraphs(model: ModelProto) -> bool:
    """Whether a node holds a graph of its own."""
    return sum(1 for _ in graphs(model.graph)) > 1


def refuse_invalid(model: ModelProto, why: str) -> None:
    """Run the full checker over a model that a library is known to get wrong at times.

    Raises:
        Refused: it is invalid; `why` begins the text.
    """
    import onnx

    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # ValidationError, InferenceError
        raise Refused(f"{why}: {error}") from error


def is_sorted(graph: GraphProto) -> bool:
    """Whether every node of the main graph stands after the nodes it reads from."""
    made = {output for node in graph.node for output in node.output if output}
    seen: set[str] = set()
    for node in graph.node:
        if any(name in made and name not in seen for name in node.input):
            return False
        seen.update(node.output)
    return True


def sort(model: ModelProto) -> ModelProto:
    """The model with its nodes in topological order (stable; as it is where they already are)."""
    if all(is_sorted(graph) for graph in graphs(model.graph)):
        return model
    import onnx_ir as ir
    from onnx_ir.passes.common import TopologicalSortPass

    return ir.to_proto(TopologicalSortPass()(ir.from_proto(model)).model)


def drop_metadata(model: ModelProto, *keys: str) -> ModelProto:
    """The model without these metadata entries, in place."""
    kept = [entry for entry in model.metadata_props if entry.key not in keys]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    return model


def is_large(model: ModelProto) -> bool:
    """Whether the model needs external data: protobuf ends at 2 GiB."""
    return int(model.ByteSize()) > 1_500_000_000
