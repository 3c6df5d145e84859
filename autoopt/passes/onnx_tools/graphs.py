"""Walking and editing ONNX graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from autoopt.model import tensors
from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.model.tensors import bodies, by_name, names_of, op_name, walk_graphs, weight_bytes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, ValueInfoProto

DEFAULT_DOMAINS: Final = ("", "ai.onnx")
"""Both spellings of the domain of standard operators."""
ORT_DOMAIN: Final = "com.microsoft"
"""Domain of onnxruntime's own operators."""
EXTERNAL_DATA_BYTES: Final = 1_500_000_000
"""Models of this size need external data. protobuf ends at 2 GiB, and libraries add to a model before they save it."""


def replace_items(repeated: Any, items: Iterable[object]) -> None:  # noqa: ANN401  protobuf's type has no name
    """Replace all items of a repeated protobuf field."""
    replacement = list(items)
    del repeated[:]
    repeated.extend(replacement)


def walk_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Iterate over all nodes of a graph and its subgraphs."""
    for inner in walk_graphs(graph):
        yield from inner.node


def has_subgraphs(model: ModelProto) -> bool:
    """Tell if any node holds a graph, as If, Loop and Scan do."""
    return sum(1 for _ in walk_graphs(model.graph)) > 1


def is_standard(node: NodeProto) -> bool:
    """Tell if the node's operator is one of ONNX's own."""
    return node.domain in DEFAULT_DOMAINS


def op_counts(model: ModelProto) -> Counter[str]:
    """Count operators by `op_name`, including subgraphs."""
    return Counter(map(op_name, walk_nodes(model.graph)))


def has_more_of(ops: Iterable[str], before: Counter[str], after: ModelProto) -> bool:
    """Tell if `after` has more nodes of any type in `ops` than `before` counted. Types match in every domain."""
    types = set(ops)
    counts = op_counts(after)
    return any(key.rpartition("::")[2] in types and count > before[key] for key, count in counts.items())


def defined_names(graph: GraphProto) -> set[str]:
    """Names of the values that a graph itself defines: inputs, initializers and results of its nodes."""
    names = names_of((*graph.input, *graph.initializer))
    for node in graph.node:
        names.update(node.output)
    return names


def value_names(model: ModelProto) -> set[str]:
    """Names of all values, including subgraphs."""
    names: set[str] = set()
    return names.union(*map(defined_names, walk_graphs(model.graph)))


def read_names(main: GraphProto) -> set[str]:
    """Names of the values that a node reads or that a graph returns, including subgraphs."""
    names: set[str] = set()
    for graph in walk_graphs(main):
        names.update(value.name for value in graph.output)
        for node in graph.node:
            names.update(node.input)
    return names


def producers(graph: GraphProto) -> dict[str, NodeProto]:
    """The node that computes each value of a graph, by the value's name."""
    return {name: node for node in graph.node for name in node.output if name}


def consumers(graph: GraphProto) -> dict[str, list[NodeProto]]:
    """The nodes of a graph, but not of its subgraphs, that read each value, by the value's name."""
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in dict.fromkeys(node.input):
            readers.setdefault(name, []).append(node)
    return readers


def attribute_values(node: NodeProto) -> dict[str, Any]:
    """The values of the attributes that a node states, by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def weight_names(model: ModelProto) -> set[str]:
    """Names of the initializers of the main graph."""
    return names_of(model.graph.initializer)


def constant_tensors(graph: GraphProto) -> dict[str, TensorProto]:
    """The initializers and the tensors of Constant nodes of a graph, by the name of their value."""
    constants = by_name(graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    return constants


def caller_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Inputs that a caller has to give: those without an initial value."""
    weights = weight_names(model)
    return [value for value in model.graph.input if value.name not in weights]


def restore_inputs(inputs: list[ValueInfoProto], result: ModelProto) -> None:
    """Declare the inputs that callers know as before, in place.

    Libraries drop unused inputs, fix their open dimensions, and rename those that are outputs too. Where they fixed
    dimensions, the sizes that they recorded for other values are forgotten: the runtime would rely on them.
    """
    graph, names = result.graph, names_of(inputs)
    before = {value.name: _fixed_sizes(value) for value in inputs}
    if any(value.name in before and _fixed_sizes(value) != before[value.name] for value in graph.input):
        _forget_sizes(graph)
    renamed = _undo_renaming(graph, names)
    weights = weight_names(result)
    kept = [value for value in inputs if value.name not in weights]
    others = [value for value in graph.input if value.name not in names | renamed.keys()]
    replace_items(graph.input, [*kept, *others])


def _forget_sizes(graph: GraphProto) -> None:
    """Drop the recorded sizes of all values but inputs, in place."""
    del graph.value_info[:]
    for output in graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.Clear()


def restore_output_types(outputs: Iterable[ValueInfoProto], result: ModelProto) -> None:
    """Declare the types of outputs that a library lost, such as sequences, in place."""
    known = by_name(outputs)
    for output in result.graph.output:
        if not output.type.WhichOneof("value") and output.name in known:
            output.type.CopyFrom(known[output.name].type)


def _undo_renaming(graph: GraphProto, names: Collection[str]) -> dict[str, str]:
    """Have nodes read inputs of these names that a library reads by others, in place; the names by those others."""
    renamed: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Identity" and node.output[0] in names:
            renamed[node.input[0]] = node.output[0]
    if renamed:
        replace_items(graph.node, [node for node in graph.node if node.output[0] not in names])
        rename_inputs(walk_nodes(graph), renamed)
    return renamed


def values_from_inputs(model: ModelProto) -> frozenset[str]:
    """The inputs, and all values that depend on more of them than the shape."""
    varying = names_of(caller_inputs(model))
    for node in model.graph.node:
        depends = not varying.isdisjoint(node.input) or any(attribute.HasField("g") for attribute in node.attribute)
        if depends and node.op_type not in ("Shape", "Size"):
            varying.update(filter(None, node.output))
    return frozenset(varying)


def _fixed_sizes(value: ValueInfoProto) -> list[int]:
    return [fixed_size(dim) for dim in value.type.tensor_type.shape.dim]


def fixed_size(dim: TensorShapeProto.Dimension) -> int:
    """The size of a dimension; 0 if it is open, for which some exporters write -1."""
    return max(0, int(dim.dim_value))


def rename_inputs(nodes: Iterable[NodeProto], renamed: Mapping[str, str]) -> None:
    """Let nodes read other values, given by the names of those they read now."""
    for node in nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]


def rename_value(graph: GraphProto, old: str, new: str) -> None:
    """Rename a value where nodes of a graph, but not of its subgraphs, read or write it, and as a weight."""
    renamed = {old: new}
    rename_inputs(graph.node, renamed)
    for tensor in graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in graph.node:
        node.output[:] = [renamed.get(name, name) for name in node.output]


def new_name(name: str, names: set[str]) -> str:
    """`name`, with underscores added until `names` lacks it; adds it to `names`."""
    while name in names:
        name += "_"
    names.add(name)
    return name


def name_nodes(model: ModelProto) -> None:
    """Give every node a unique name, in place. Libraries that identify nodes by name lose unnamed ones."""
    original = names_of(walk_nodes(model.graph))
    assigned: set[str] = set()
    for number, node in enumerate(walk_nodes(model.graph)):
        name = node.name or f"{node.op_type}_{number}"
        while name in assigned or (name in original and name != node.name):
            name += "_"
        node.name = name
        assigned.add(name)


def remove_weights_from_inputs(model: ModelProto) -> None:
    """Make initializers constant: take them out of the model's inputs, in place, as IR version 4 and later allow."""
    inputs = caller_inputs(model)
    if len(inputs) < len(model.graph.input):
        replace_items(model.graph.input, inputs)
        model.ir_version = max(model.ir_version, 4)


def drop_weight_types(model: ModelProto) -> None:
    """Drop the recorded types of initializers, in place; the initializers have their own.

    Converters change a weight and leave its recorded type behind, which then contradicts it: the quantizer transposes
    the weight of a `Gemm(transB=1)`, the float16 converter changes its type. PyTorch's exporter records such types.
    """
    weights = weight_names(model)
    replace_items(model.graph.value_info, [value for value in model.graph.value_info if value.name not in weights])


def drop_types_of_omitted(model: ModelProto) -> ModelProto:
    """Drop the types of omitted outputs, and empty ones, in place.

    onnxoptimizer, which onnxsim contains, records them under the empty name. The checker then takes them for those of
    all omitted inputs: the hidden state of an LSTM for its sequence lengths. It knows no types of sequences.
    """
    for graph in walk_graphs(model.graph):
        typed = [value for value in graph.value_info if value.name and value.type.WhichOneof("value")]
        replace_items(graph.value_info, typed)
    return model


def drop_metadata(model: ModelProto, *keys: str) -> ModelProto:
    """Drop metadata entries, in place."""
    replace_items(model.metadata_props, [entry for entry in model.metadata_props if entry.key not in keys])
    return model


def values_read(node: NodeProto) -> set[str]:
    """Names of the values that a node reads, and that its bodies read from outside."""
    read: set[str] = set()
    inner: set[str] = set()
    for body in bodies(node):
        inner |= defined_names(body)
        for inner_node in body.node:
            read.update(inner_node.input)
    return {*node.input, *(read - inner)} - {""}


def sort_nodes(model: ModelProto) -> ModelProto:
    """Return the model with the nodes of all graphs sorted, in place."""
    for graph in walk_graphs(model.graph):
        tensors.sort_nodes(graph)
    return model


def is_large(model: ModelProto) -> bool:
    """Tell if the model needs external data."""
    return weight_bytes(model) > EXTERNAL_DATA_BYTES


FLOAT_ATTRIBUTES: Final = {"value_float": "float32", "value_floats": "float32"}
NUMBER_ATTRIBUTES: Final = {**FLOAT_ATTRIBUTES, "value_int": "int64", "value_ints": "int64"}
"""Attributes of Constant that hold numbers, and the element type of the tensor that they stand for."""


def store_as_tensor(constant: NodeProto, attributes: Mapping[str, str]) -> None:
    """Store the numbers of a Constant node as a tensor, in place, if one of `attributes` holds them."""
    for attribute in constant.attribute:
        if attribute.name in attributes:
            array = np.asarray(helper.get_attribute_value(attribute), dtype=attributes[attribute.name])
            replace_items(constant.attribute, [helper.make_attribute("value", numpy_helper.from_array(array))])
            return
