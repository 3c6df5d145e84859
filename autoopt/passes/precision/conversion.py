"""float16 conversion by library converters, with their limits worked around."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final, Literal

from autoopt.model.lazy_imports import helper, ir, np, numpy_helper, onnx
from autoopt.model.tensors import bodies, names_of, plain_domain, tensors, walk_graphs
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.graphs import (
    FLOAT_ATTRIBUTES,
    attribute_values,
    defined_names,
    drop_weight_types,
    has_subgraphs,
    is_large,
    name_nodes,
    new_name,
    read_names,
    remove_weights_from_inputs,
    rename_inputs,
    rename_value,
    replace_items,
    sort_nodes,
    store_as_tensor,
    value_names,
    walk_nodes,
)
from autoopt.passes.onnx_tools.large_models import call_without_weights
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.values import give_types
from autoopt.passes.patches.float16_rounding import use_fast_rounding

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Converter = Literal["occ", "ort"]
"""onnxconverter-common's converter, or onnxruntime's."""
OF_FLOAT32: Final = ("RandomNormal", "RandomUniform", "HannWindow", "HammingWindow", "BlackmanWindow")
"""Operators that make float32 of no input of that type, unless an attribute names another."""


def to_float16(
    model: ModelProto, converter: Converter, op_types: list[str], names: list[str], **options: object
) -> ModelProto | None:
    """Convert `model`, in place, to float16; returns None if nothing in it computes in float16.

    Operators of `op_types` and nodes called `names` stay in float32, besides the converter's own list.
    """
    if converter == "ort":
        from onnxruntime.transformers import float16
    else:
        from onnxconverter_common import float16

        options["check_fp16_ready"] = False  # would refuse models that hold any float16 tensor
    use_fast_rounding(float16)
    protected = prepare_for_conversion(model)
    original = names_of(walk_nodes(model.graph))
    kinds: dict[str, int] = {}
    if has_subgraphs(model):
        name_values_apart(model)
    if options.pop("keep_io_types", False):
        # The converters' casts do not reach bodies, which read inputs of the model by name, and onnxconverter-common's
        # leave out outputs of operators that stay in float32.
        values = [value for value in (*model.graph.input, *model.graph.output) if value.type.HasField("tensor_type")]
        kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    kept_types = {*float16.DEFAULT_OP_BLOCK_LIST, "Celu", *op_types}
    kept_names = {*names, *protected, *_without_float16(model)}
    _separate_weights(model, kept_types, kept_names)
    if is_large(model):  # the converters would serialize it
        model = call_without_weights(onnx.shape_inference.infer_shapes, model)
        options["disable_shape_infer"] = True
    with quiet():
        converted = float16.convert_float_to_float16(
            model, op_block_list=sorted(kept_types), node_block_list=sorted(kept_names), keep_io_types=False, **options
        )
    _remove_repeated_nodes(converted.graph)
    _remove_round_trips(converted.graph, original)
    move_casts(converted.graph, original)
    drop_weight_types(converted)
    if not computes_float16(converted):
        return None
    if kinds:
        typed = to_ir(converted)
        give_types(typed, {name: ir.DataType(kind) for name, kind in kinds.items()})
        converted = to_proto(typed)
    return sort_nodes(converted)


def _without_float16(model: ModelProto) -> Iterator[str]:
    """Yield the names of the nodes that have no float16 form, by their definitions or in onnxruntime.

    The types of their results are declared, in place: the converters cast only values of known types.
    """
    versions = {plain_domain(entry.domain): entry.version for entry in model.opset_import}
    declared = names_of((*model.graph.value_info, *model.graph.output))
    for node in walk_nodes(model.graph):
        domain = plain_domain(node.domain)
        version = versions.get(domain, 0)
        if _is_float32_by_definition(node):
            yield node.name
        elif onnx.defs.has(node.op_type, version, domain):
            schema = onnx.defs.get_schema(node.op_type, version, domain)
            if any("tensor(float)" in each.types and "tensor(float16)" not in each.types for each in schema.inputs[:1]):
                yield node.name
            if domain:
                results = zip(node.output, schema.outputs, strict=False)
                floats = {name for name, result in results if result.type_str == "tensor(float)"} - declared
                model.graph.value_info.extend(helper.make_tensor_value_info(name, 1, None) for name in sorted(floats))


def _is_float32_by_definition(node: NodeProto) -> bool:
    """Tell if a node has no float16 form by its attributes or its operator, whatever its opset."""
    if "Sequence" in node.op_type or "Optional" in node.op_type or node.op_type in OF_FLOAT32:
        return True
    for each in node.attribute:
        if each.name == "reduction" and each.s != b"none":
            return True
        if each.name == "dtype" and each.i == onnx.TensorProto.FLOAT:
            return True
    return False


def _separate_weights(model: ModelProto, op_types: Collection[str], names: Collection[str]) -> None:
    """Give the nodes that stay in float32 copies of the weights that others read too, in place.

    onnxconverter-common would leave these weights in float32 for all.
    """
    kept: list[NodeProto] = []
    read: set[str] = set()
    for node in walk_nodes(model.graph):
        if node.op_type in op_types or node.name in names:
            kept.append(node)
        else:
            read.update(node.input)
    shared = read.intersection(name for node in kept for name in node.input)
    taken, renamed = value_names(model), {}
    for tensor in list(model.graph.initializer):
        if tensor.name in shared and tensor.data_type == onnx.TensorProto.FLOAT:
            copy = model.graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = renamed[tensor.name] = new_name(f"{tensor.name}_float32", taken)
    rename_inputs(kept, renamed)


def prepare_for_conversion(model: ModelProto) -> list[str]:
    """Work around limits of the converters, in place.

    - They tell nodes apart by name.
    - They convert a weight that is also an input only in part.
    - They do not know constants stored as plain numbers, or zeros that a ConstantOfShape leaves unsaid.
    - They put a cast between a model output and its producer, but not between the output and its readers in the
      model; an Identity in between separates the two.
    - They change the output type of a cast to float32, but not its attribute `to`.

    Returns:
        Names of the nodes that the converters must not touch, for the last reason.
    """
    name_nodes(model)
    remove_weights_from_inputs(model)
    protected = []
    for node in walk_nodes(model.graph):
        if node.op_type == "Cast" and any(attribute.i == onnx.TensorProto.FLOAT for attribute in node.attribute):
            protected.append(node.name)
        elif node.op_type == "Constant":
            store_as_tensor(node, FLOAT_ATTRIBUTES)
        elif node.op_type == "ConstantOfShape" and not node.attribute:
            zero = numpy_helper.from_array(np.zeros(1, np.float32))
            node.attribute.append(helper.make_attribute("value", zero))
    _separate_outputs(model.graph)
    return protected


def _separate_outputs(graph: GraphProto) -> None:
    """Put an Identity before each output that nodes read, in place."""
    inputs = {name for node in graph.node for name in node.input}
    for name in sorted(inputs & names_of(graph.output)):
        inner = f"{name}/inner"
        rename_value(graph, name, inner)
        graph.node.add(op_type="Identity", input=[inner], output=[name], name=f"{name}/identity")


def _remove_repeated_nodes(graph: GraphProto) -> None:
    """Remove nodes whose outputs an earlier node makes, in place: onnxruntime's converter repeats its casts."""
    outputs: set[str] = set()
    unique = []
    for node in graph.node:
        if not outputs.issuperset(node.output):
            unique.append(node)
        outputs.update(node.output)
    if len(unique) < len(graph.node):
        replace_items(graph.node, unique)


def _remove_round_trips(graph: GraphProto, original: set[str]) -> None:
    """Remove casts from float32 to float16 and back between two float32 nodes, in place.

    The converters insert such pairs, which lose precision for nothing. Nodes in `original`, by name, stay.
    """
    casts = {node.output[0]: node for node in graph.node if node.op_type == "Cast" and node.name not in original}

    def origin(name: str) -> str:
        """The value before a pair of casts that ends in `name`, otherwise `name`."""
        up = casts[name]
        down = casts.get(up.input[0])
        if down is None or up.attribute[0].i != onnx.TensorProto.FLOAT:
            return name
        if down.attribute[0].i != onnx.TensorProto.FLOAT16:
            return name
        return str(down.input[0])

    for node in walk_nodes(graph):
        for index, name in enumerate(node.input):
            if name in casts:
                node.input[index] = origin(name)
    count = 0
    while count != len(graph.node):  # until all that is left is read
        count, names = len(graph.node), read_names(graph)
        used = [node for node in graph.node if node.name in original or not names.isdisjoint(node.output)]
        replace_items(graph.node, used)


def has_float32(model: ModelProto) -> bool:
    """Tell if an input, or a weight or constant anywhere in the model, is float32."""
    types = {value.type.tensor_type.elem_type for value in model.graph.input}
    types.update(tensor.data_type for tensor in tensors(model))
    return onnx.TensorProto.FLOAT in types


def computes_float16(model: ModelProto) -> bool:
    """Tell if any node except a cast reads a float16 input or weight, or the result of a cast to float16."""
    kind = onnx.TensorProto.FLOAT16
    half = {value.name for value in model.graph.input if value.type.tensor_type.elem_type == kind}
    read: set[str] = set()
    for graph in walk_graphs(model.graph):
        half.update(tensor.name for tensor in graph.initializer if tensor.data_type == kind)
        for node in graph.node:
            if node.op_type != "Cast":
                read.update(node.input)
            elif attribute_values(node).get("to") == kind:
                half.update(node.output)
    return not half.isdisjoint(read)


def name_values_apart(model: ModelProto) -> None:
    """Give values of different graphs different names, in place: the branches of an If may use the same ones."""
    taken = value_names(model)
    seen: set[str] = set()
    for graph in walk_graphs(model.graph):
        own = defined_names(graph) - {""}
        for name in sorted(own & seen):
            new = new_name(name, taken)
            for inner in walk_graphs(graph):
                rename_value(inner, name, new)
                for item in (*inner.input, *inner.output, *inner.value_info):
                    if item.name == name:
                        item.name = new
        seen |= own


def move_casts(graph: GraphProto, original: set[str]) -> None:
    """Move casts, in place, to the bodies that define what they read. Nodes in `original`, by name, stay.

    The converters know values only by name, and put all casts into the main graph.
    """
    homes = {name: body for node in graph.node for body in bodies(node) for name in defined_names(body)}
    moved = True
    while moved:
        moved = False
        for node in list(graph.node):
            if node.op_type == "Cast" and node.name not in original and node.input[0] in homes:
                home = homes[node.output[0]] = homes[node.input[0]]
                home.node.add().CopyFrom(node)
                graph.node.remove(node)
                moved = True
