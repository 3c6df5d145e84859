"""Whether a pass changed anything: a digest of what a model computes, blind to order of fields, names and notes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

    from autoopt.passes.base import Touch


DERIVED_NOTES = ("pkg.onnxscript.", "onnx_ir.", "pkg.torch.")
"""Prefixes of metadata keys that libraries leave on nodes and values; they tell nothing of the computation."""


def fingerprint(model: ModelProto, touches: Iterable[Touch] = ()) -> str:
    """sha256 of the structure of `model`.

    Names of nodes and of inner values, recorded types of inner values and metadata count only where `touches` lists
    them. Always counted: version, opsets, signature, operators in order with attributes, every initializer.
    """
    found = hashlib.sha256()
    kinds = frozenset(touches)
    opsets = sorted({("" if o.domain == "ai.onnx" else o.domain, o.version) for o in model.opset_import})
    _put(found, model.ir_version, opsets)
    _graph(found, model.graph, {}, kinds)
    for function in sorted(model.functions, key=lambda f: (f.domain, f.name)):
        _function(found, function, kinds)
    if "metadata" in kinds:
        _put(found, sorted((e.key, e.value) for e in model.metadata_props))
    return found.hexdigest()


def strip_notes(model: ModelProto, source: ModelProto) -> None:
    """Remove from `model`, in place, what tells who made it and not what it is; equal graphs then have equal bytes.

    Producer, version and documentation become those of `source`.
    """
    model.producer_name, model.producer_version = source.producer_name, source.producer_version
    model.doc_string, model.graph.doc_string = source.doc_string, source.graph.doc_string
    _strip_graph(model.graph)
    for function in model.functions:
        _strip_nodes(function.node)


def allow_constants(model: ModelProto) -> None:
    """Raise the IR version to 4, in place, where a weight is no input: below that version every weight has to be."""
    inputs = {value.name for value in model.graph.input}
    if model.ir_version < 4 and any(tensor.name not in inputs for tensor in model.graph.initializer):
        model.ir_version = 4


def _strip_graph(graph: GraphProto) -> None:
    for owner in (graph, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        _strip_metadata(owner)
    _strip_nodes(graph.node)


def _strip_nodes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        _strip_metadata(node)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
                _strip_graph(inner)


def _strip_metadata(owner: Any) -> None:
    kept = [e for e in owner.metadata_props if not e.key.startswith(DERIVED_NOTES)]
    if len(kept) != len(owner.metadata_props):
        kept = [type(e).FromString(e.SerializeToString()) for e in kept]
        del owner.metadata_props[:]
        owner.metadata_props.extend(kept)


def _put(found: Any, *things: Any) -> None:
    found.update(repr(things).encode())


def _graph(found: Any, graph: GraphProto, outer: Mapping[str, str], kinds: frozenset[str]) -> None:
    """`outer` maps the names visible from outside to their canonical names."""
    seen = dict(outer)
    level = len(outer)
    for number, value in enumerate(graph.input):
        seen[value.name] = value.name if not outer else f"{level}:in{number}"
        _put(found, seen[value.name], value.type.SerializeToString(deterministic=True))
    digests = []
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        digest = _tensor(tensor)
        digests.append(digest)
        seen[tensor.name] = seen[tensor.name] + digest if tensor.name in inputs else digest
    _put(found, sorted(digests), len(graph.sparse_initializer))
    _nodes(found, graph.node, seen, kinds)
    for value in graph.output:
        _put(found, "out", seen.get(value.name, "?"), value.name if not outer else "")
        _put(found, value.type.SerializeToString(deterministic=True) if not outer else b"")
    if "types" in kinds:
        notes = sorted((v.name, v.type.SerializeToString(deterministic=True)) for v in graph.value_info)
        _put(found, notes)
    if "names" in kinds:
        _put(found, graph.name, sorted(t.name for t in graph.initializer))


def _nodes(found: Any, nodes: Iterable[NodeProto], seen: dict[str, str], kinds: frozenset[str]) -> None:
    for number, node in enumerate(nodes):
        _put(found, "" if node.domain == "ai.onnx" else node.domain, node.op_type)
        _put(found, [seen.get(name, "?" if name else "") for name in node.input])
        for attribute in sorted(node.attribute, key=lambda a: a.name):
            _attribute(found, attribute, seen, kinds)
        for position, name in enumerate(node.output):
            if name:
                seen[name] = f"{len(seen)}:{number}.{position}"
        _put(found, [bool(name) for name in node.output])
        if "names" in kinds:
            _put(found, node.name, list(node.output))


def _attribute(found: Any, attribute: AttributeProto, seen: Mapping[str, str], kinds: frozenset[str]) -> None:
    _put(found, attribute.name, attribute.type, attribute.ref_attr_name)
    if attribute.HasField("t"):
        _put(found, _tensor(attribute.t))
    elif attribute.HasField("g"):
        _graph(found, attribute.g, seen, kinds)
    elif attribute.graphs:
        for graph in attribute.graphs:
            _graph(found, graph, seen, kinds)
    else:
        plain = type(attribute)()
        plain.CopyFrom(attribute)
        plain.doc_string = ""
        found.update(plain.SerializeToString(deterministic=True))


def _function(found: Any, function: FunctionProto, kinds: frozenset[str]) -> None:
    seen = {name: f"arg{i}" for i, name in enumerate(function.input)}
    _put(found, function.domain, function.name, list(function.attribute), len(function.input))
    _put(found, sorted((o.domain, o.version) for o in function.opset_import))
    _nodes(found, function.node, seen, kinds)
    _put(found, [seen.get(name, "?") for name in function.output])


def _tensor(tensor: TensorProto) -> str:
    """sha256 of type, shape and values, however they are stored."""
    import onnx
    from onnx import numpy_helper

    digest = hashlib.sha256(repr((tensor.data_type, tuple(tensor.dims))).encode())
    if tensor.data_type == onnx.TensorProto.STRING:
        digest.update(repr(list(tensor.string_data)).encode())
    elif tensor.HasField("raw_data"):
        digest.update(tensor.raw_data)
    elif tensor.data_location == onnx.TensorProto.EXTERNAL:
        digest.update(repr([(e.key, e.value) for e in tensor.external_data]).encode())
    else:
        digest.update(numpy_helper.tobytes_little_endian(numpy_helper.to_array(tensor)))
    return digest.hexdigest()
