"""Small faults of model files, mended when a model is taken in: runtimes and libraries disagree about them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import onnx
from autoopt.model.tensors import graphs, names_of, nodes, plain_domain, sort_nodes, walk_graphs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

LATEST_IR: Final = 13
"""Latest IR version that onnxruntime reads; onnx writes a later one by default."""


def repair(model: ModelProto) -> list[str]:
    """Mend the faults of a model in place that do not change what it computes; returns a few words on each."""
    repairs = [*_repair_versions(model)]
    renamed = sum(map(_rename_repeated_nodes, graphs(model)))
    if renamed:
        repairs.append(f"names that several nodes had made unique ({renamed})")
    if sum(map(sort_nodes, graphs(model))):
        repairs.append("nodes sorted")
    if sum(map(partial(_feed_float32, model.graph), list(model.graph.node))):
        repairs.append("probabilities converted from float64 to float32: onnxruntime makes no maps of others")
    if not model.graph.name:
        model.graph.name = "graph"
        repairs.append("the graph named")
    return repairs


def allow_constants(model: ModelProto) -> bool:
    """Raise the IR version to 4, in place, if a weight is not an input. Earlier versions require all weights to be."""
    is_early = 0 < model.ir_version < 4
    lacks_inputs = is_early and not names_of(model.graph.initializer) <= names_of(model.graph.input)
    if lacks_inputs:
        model.ir_version = 4
    return lacks_inputs


def _repair_versions(model: ModelProto) -> Iterator[str]:
    if _unify_domains(model):
        yield "each operator set imported once, and that of ONNX by its short name"
    before = model.ir_version
    lowest = onnx.helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    if allow_constants(model):
        yield f"IR version raised from {before} to 4: weights are no inputs"
    elif before > LATEST_IR and model.opset_import:
        model.ir_version = lowest
        yield f"IR version lowered from {before} to {lowest}: onnxruntime reads none above {LATEST_IR}"
    elif before == 0 and model.opset_import:
        model.ir_version = max(lowest, 4)
        yield f"IR version {model.ir_version} stated: there was none"
    yield from _import_domains(model)


def _import_domains(model: ModelProto) -> Iterator[str]:
    """Import the operator sets that nodes use, at their newest version."""
    imported = {entry.domain for entry in model.opset_import}
    used = {node.domain for graph in walk_graphs(model.graph) for node in graph.node}
    for domain in sorted(used - imported - {""}):
        schemas = onnx.defs.get_all_schemas_with_history()
        version = max((schema.since_version for schema in schemas if schema.domain == domain), default=1)
        model.opset_import.add(domain=domain, version=version)
        yield f"operator set {domain!r} imported"


def _unify_domains(model: ModelProto) -> int:
    """Write ONNX's domain `ai.onnx` as the empty one and import each domain once, in place; returns the changes."""
    changes = 0
    for node in nodes(model):
        if node.domain != plain_domain(node.domain):
            node.domain = ""
            changes += 1
    for each in (model, *model.functions):
        versions: dict[str, int] = {}
        for entry in each.opset_import:
            domain = plain_domain(entry.domain)
            changes += domain != entry.domain or domain in versions
            versions[domain] = max(entry.version, versions.get(domain, 0))
        del each.opset_import[:]
        for domain, version in versions.items():
            each.opset_import.add(domain=domain, version=version)
    return changes


def _feed_float32(graph: GraphProto, node: NodeProto) -> bool:
    """Insert a Cast in front of a ZipMap of float64, as in models of scikit-learn, in place; False for other nodes."""
    made = [value.type.sequence_type.elem_type.map_type for value in graph.output if value.name in node.output]
    doubles = [each for each in made if each.value_type.tensor_type.elem_type == onnx.TensorProto.DOUBLE]
    for each in doubles:
        each.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        name = f"{node.input[0]}/float32"
        place = list(graph.node).index(node)
        graph.node.insert(place, onnx.helper.make_node("Cast", [node.input[0]], [name], name=name, to=1))
        graph.node[place + 1].input[0] = name
    return bool(doubles)


def _rename_repeated_nodes(graph: GraphProto) -> int:
    """Rename nodes that have the name of an earlier one, in place; returns their number."""
    names, seen, renamed = names_of(graph.node), set[str](), 0
    for node in graph.node:
        if node.name and node.name in seen:
            name = node.name
            while name in names:
                name += "_"
            node.name = name
            names.add(name)
            renamed += 1
        seen.add(node.name)
    return renamed
