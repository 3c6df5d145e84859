"""A digest of what a model computes, blind to the order of fields, to names and to notes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from autoopt.model.lazy_imports import numpy_helper, onnx
from autoopt.model.split import weight_at
from autoopt.model.tensors import graphs, names_of, nodes, plain_domain
from autoopt.passes.onnx_tools.graphs import replace_items

if TYPE_CHECKING:
    from hashlib import _Hash

    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

    from autoopt.passes.base import Touch

DERIVED_NOTES: Final = ("pkg.onnxscript.", "onnx_ir.", "pkg.torch.")
"""Prefixes of metadata keys that libraries leave on nodes and values. They do not describe the computation."""


@dataclass(frozen=True)
class _View:
    """The parts of a model that count."""

    kinds: frozenset[str]
    """See `touches` of `fingerprint`."""
    digest_tensor: Callable[[TensorProto], str]


def outline(model: ModelProto, touches: Iterable[Touch] = ()) -> str:
    """Compute a digest like `fingerprint`, but of tensors only their types and shapes count.

    Models with different outlines have different fingerprints. It does not read the weights.
    """
    return _fingerprint(model, _View(frozenset(touches), _describe_tensor))


def fingerprint(model: ModelProto, touches: Iterable[Touch] = ()) -> str:
    """Compute the sha256 of the structure of `model`, whose external data is loaded, unless it is split.

    Versions, operator sets, signature, operators in order with their attributes, and initializers always count. What a
    pass `touches` counts too: names of nodes and inner values, recorded types of inner values, metadata.
    """
    return _fingerprint(model, _View(frozenset(touches), _digest_tensor))


def _fingerprint(model: ModelProto, view: _View) -> str:
    digest = hashlib.sha256()
    opsets = sorted({(plain_domain(entry.domain), entry.version) for entry in model.opset_import})
    _update(digest, model.ir_version, opsets)
    _add_graph(digest, model.graph, {}, view)
    for function in sorted(model.functions, key=lambda function: (function.domain, function.name)):
        names = {name: f"arg{position}" for position, name in enumerate(function.input)}
        _update(digest, function.domain, function.name, list(function.attribute), len(function.input))
        _update(digest, sorted((entry.domain, entry.version) for entry in function.opset_import))
        _add_nodes(digest, function.node, names, view)
        _update(digest, [names.get(name, "?") for name in function.output])
    if "metadata" in view.kinds:
        _update(digest, sorted((entry.key, entry.value) for entry in model.metadata_props))
    return digest.hexdigest()


def strip_notes(model: ModelProto, source: ModelProto) -> None:
    """Remove notes on who made `model`, in place, so that equal graphs have equal bytes.

    Producer, version and documentation become those of `source`.
    """
    model.producer_name, model.producer_version = source.producer_name, source.producer_version
    model.doc_string, model.graph.doc_string = source.doc_string, source.graph.doc_string
    for graph in graphs(model):
        for owner in (graph, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
            _strip_metadata(owner)
    for node in nodes(model):
        _strip_metadata(node)


def _strip_metadata(owner: Any) -> None:  # noqa: ANN401  any message with metadata_props
    entries = [entry for entry in owner.metadata_props if not entry.key.startswith(DERIVED_NOTES)]
    if len(entries) < len(owner.metadata_props):
        replace_items(owner.metadata_props, entries)


def _update(digest: _Hash, *values: object) -> None:
    digest.update(repr(values).encode())


def _add_graph(digest: _Hash, graph: GraphProto, outer: Mapping[str, str], view: _View) -> None:
    """Add the main graph, or the body of a node, to a digest.

    Values get canonical names: the position of the node that makes them, or the digest of a constant. `outer` has those
    of the values visible from outside; it is empty for the main graph, whose signature counts.
    """
    is_main = not outer
    inputs: dict[str, str] = {}
    for number, value in enumerate(graph.input):
        inputs[value.name] = value.name if is_main else f"{len(outer)}:in{number}"
        _update(digest, inputs[value.name], value.type.SerializeToString(deterministic=True))
    weights = [(tensor.name, view.digest_tensor(tensor)) for tensor in graph.initializer]
    names = {**outer, **inputs}
    for name, content in weights:
        names[name] = inputs.get(name, "") + content  # of an input, it is a default: the caller may give another
    _update(digest, sorted(content for _, content in weights), len(graph.sparse_initializer))
    _add_nodes(digest, graph.node, names, view)
    for value in graph.output:
        name, kind = "", b""
        if is_main:
            name, kind = value.name, value.type.SerializeToString(deterministic=True)
        _update(digest, "out", names.get(value.name, "?"), name)
        _update(digest, kind)
    _add_notes(digest, graph, names_of(graph.initializer), view.kinds)


def _add_notes(digest: _Hash, graph: GraphProto, weights: set[str], kinds: frozenset[str]) -> None:
    """Add what counts for passes that touch it: recorded types of inner values, names of the graph and its weights."""
    if "types" in kinds:
        typed = [value for value in graph.value_info if value.name not in weights]
        _update(digest, sorted((value.name, value.type.SerializeToString(deterministic=True)) for value in typed))
    if "names" in kinds:
        _update(digest, graph.name, sorted(weights))


def _add_nodes(digest: _Hash, nodes: Iterable[NodeProto], names: dict[str, str], view: _View) -> None:
    for number, node in enumerate(nodes):
        _update(digest, plain_domain(node.domain), node.op_type)
        # An omitted optional input has an empty name; "?" stands for a value from nowhere in an invalid graph.
        _update(digest, [names.get(name, "?" if name else "") for name in node.input])
        for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
            _add_attribute(digest, attribute, names, view)
        for position, name in enumerate(node.output):
            if name:
                names[name] = f"{len(names)}:{number}.{position}"
        _update(digest, list(map(bool, node.output)))
        if "names" in view.kinds:
            _update(digest, node.name, list(node.output))


def _add_attribute(digest: _Hash, attribute: AttributeProto, names: Mapping[str, str], view: _View) -> None:
    _update(digest, attribute.name, attribute.type, attribute.ref_attr_name)
    if attribute.HasField("t"):
        _update(digest, view.digest_tensor(attribute.t))
    elif attribute.HasField("g"):
        _add_graph(digest, attribute.g, names, view)
    elif attribute.graphs:
        for graph in attribute.graphs:
            _add_graph(digest, graph, names, view)
    else:
        plain = type(attribute)()
        plain.CopyFrom(attribute)
        plain.doc_string = ""
        digest.update(plain.SerializeToString(deterministic=True))


def _describe_tensor(tensor: TensorProto) -> str:
    return repr((tensor.data_type, tuple(tensor.dims)))


def _digest_tensor(tensor: TensorProto) -> str:
    """sha256 of type, shape and values, whichever field stores them."""
    digest = hashlib.sha256(_describe_tensor(tensor).encode())
    if tensor.data_type == onnx.TensorProto.STRING:
        digest.update(repr(list(tensor.string_data)).encode())
    elif tensor.HasField("raw_data"):
        digest.update(hashlib.sha256(tensor.raw_data).digest())
    elif tensor.data_location == onnx.TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        weight = weight_at(entries.get("location", ""))
        if weight:
            digest.update(bytes.fromhex(weight))
        else:
            digest.update(repr(sorted(entries.items())).encode())
    else:
        digest.update(hashlib.sha256(numpy_helper.tobytes_little_endian(numpy_helper.to_array(tensor))).digest())
    return digest.hexdigest()
