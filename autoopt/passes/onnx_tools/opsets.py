"""Versions of a model, read and raised, and functions replaced with their bodies.

onnx's inliner leaves out the attributes that a call does not state, although functions and operators have defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autoopt.errors import one_line
from autoopt.model.lazy_imports import helper, ir, onnx, shape_inference
from autoopt.model.tensors import names_of, nodes, plain_domain
from autoopt.passes.base import Refused
from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.graphs import (
    DEFAULT_DOMAINS,
    ORT_DOMAIN,
    attribute_values,
    drop_weight_types,
    is_standard,
    replace_items,
    walk_nodes,
)
from autoopt.passes.onnx_tools.large_models import call_without_weights
from autoopt.passes.onnx_tools.libraries import quiet

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto, NodeProto

Converter: TypeAlias = Literal["onnxscript", "onnx"]
RESIZING_OPS: Final = ("Resize", "Upsample")
RESIZE_CHANGED: Final = 11
"""Opset that gave Resize other defaults than the meaning it had."""
HARDMAX_CHANGED: Final = 13
GROUPS_CHANGED: Final = 21
"""Opset from which GroupNormalization scales channels in place of groups. Neither converter knows their number."""
ONNXSCRIPT_FROM: Final = 18
"""Lowest opset that onnxscript converts from by itself."""


def opset(model: ModelProto) -> int:
    """Version of the standard operators; 0 if the model does not import them."""
    return max((entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS), default=0)


def at_least_opset(model: ModelProto, version: int) -> ModelProto:
    """Return the model at opset `version` or later, converted if it is older, with its IR version raised to match.

    Raises:
        Refused: no converter can convert the model, or it does not use the standard operators.
    """
    current = opset(model)
    if current == 0:
        raise Refused("the model does not use the ai.onnx operators")
    if current >= version:
        return model
    try:
        return convert_opset(model, version)
    except ValueError as error:
        raise Refused(f"needs opset {version}; the model at opset {current} cannot be converted: {error}") from error


def raised(model: ir.Model, version: int) -> ir.Model:
    """The model of onnx-ir at opset `version` or later, as `at_least_opset`; the model itself if it is at it."""
    current = max((model.opset_imports.get(domain, 0) for domain in DEFAULT_DOMAINS), default=0)
    return model if current >= version else to_ir(at_least_opset(to_proto(model), version))


def convert_opset(model: ModelProto, version: int, first: Converter = "onnx") -> ModelProto:
    """Convert a copy of the model to a newer opset by the library `first`, and by the other if that fails.

    Raises:
        ValueError: both fail; the text has the reason of each.
    """
    failures = []
    model = inline_functions(model)  # onnx's converter drops functions, onnxscript's refuses those of other versions
    has_groups = any(node.op_type == "GroupNormalization" for node in walk_nodes(model.graph))
    if has_groups and opset(model) < GROUPS_CHANGED <= version:
        model = expand_operators(model, ["GroupNormalization"], opset(model))
    for converter in sorted(CONVERTERS, key=lambda name: name != first):
        try:
            with quiet():
                converted = call_without_weights(partial(CONVERTERS[converter], version=version), model)
        except Exception as error:  # the converters raise bare exceptions of several kinds
            failures.append(f"{converter}: {one_line(str(error))}")
            continue
        # onnxscript stops at an operator that it cannot convert and reports nothing.
        if opset(converted) == version:
            converted.ir_version = max(converted.ir_version, ir_version_for(version), model.ir_version)
            return converted
        failures.append(f"{converter}: stopped at opset {opset(converted)}")
    raise ValueError("; ".join(failures))


def _convert_with_onnx(model: ModelProto, version: int) -> ModelProto:
    """Convert with onnx, whose adapters are wrong for Pad and the resizing operators of opsets before 11.

    The resizing ones scale coordinates from the corner and round down. The adapter to opset 11 leaves the new defaults
    in place, which do neither. It also leaves Pad the attribute `value` in the modes that do not use it.
    """
    convert = onnx.version_converter.convert_version
    model = _without_unused_values(model)
    ops = {node.op_type for node in walk_nodes(model.graph) if is_standard(node)}
    if opset(model) < RESIZE_CHANGED <= version and not ops.isdisjoint(RESIZING_OPS):
        model = convert(model, RESIZE_CHANGED)
        for node in walk_nodes(model.graph):
            if node.op_type == "Resize":
                node.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
                node.attribute.append(onnx.helper.make_attribute("nearest_mode", "floor"))
    if opset(model) < HARDMAX_CHANGED <= version and "Hardmax" in ops:
        raise ValueError("Hardmax has another meaning from opset 13 on, and onnx does not convert it")
    converted: ModelProto = convert(model, version)
    return converted


def _without_unused_values(model: ModelProto) -> ModelProto:
    """The model, or a copy, in which only a Pad with constants has the attribute `value`."""

    def is_unused(node: NodeProto) -> bool:
        attributes = attribute_values(node)
        return node.op_type == "Pad" and "value" in attributes and attributes.get("mode") in (b"reflect", b"edge")

    if not any(map(is_unused, walk_nodes(model.graph))):
        return model
    copy = deepcopy(model)
    for node in filter(is_unused, walk_nodes(copy.graph)):
        replace_items(node.attribute, [attribute for attribute in node.attribute if attribute.name != "value"])
    return copy


def _convert_with_onnxscript(model: ModelProto, version: int) -> ModelProto:
    """Convert with onnxscript, which knows the steps from `ONNXSCRIPT_FROM` on."""
    from onnxscript.version_converter import convert_version

    if opset(model) < min(version, ONNXSCRIPT_FROM):
        model = _convert_with_onnx(model, min(version, ONNXSCRIPT_FROM))
    ir_model = to_ir(model)
    convert_version(ir_model, version, fallback=True)
    return to_proto(ir_model)


CONVERTERS: Final[Mapping[Converter, Callable[..., ModelProto]]] = {
    "onnx": _convert_with_onnx,
    "onnxscript": _convert_with_onnxscript,
}


def ir_version_for(version: int) -> int:
    """Lowest IR version that a model of this opset may have."""
    return int(onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", version)]))


def with_ort_domain(model: ir.Model) -> ir.Model:
    """The model, with onnxruntime's domain imported if nodes use it, in place."""
    if any(node.domain == ORT_DOMAIN for node in model.graph.all_nodes()):
        model.opset_imports.setdefault(ORT_DOMAIN, 1)
    return model


def import_ort_domain(model: ModelProto) -> None:
    """Import onnxruntime's domain if nodes use it and the import is missing, in place. Some libraries forget it."""
    is_imported = any(entry.domain == ORT_DOMAIN for entry in model.opset_import)
    if not is_imported and any(node.domain == ORT_DOMAIN for node in walk_nodes(model.graph)):
        model.opset_import.add(domain=ORT_DOMAIN, version=1)


FunctionId: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a function."""


def inline_functions(model: ModelProto) -> ModelProto:
    """Replace calls of the model's own functions with their bodies; a function of another opset is converted.

    Calls in `model` itself then state the defaults of their attributes.
    """
    if not model.functions:
        return model
    defaults = {(each.domain, each.name, each.overload): each.attribute_proto for each in model.functions}
    _state_defaults(model, defaults)
    return call_without_weights(_inlined, model)


def with_inlined_functions(model: ir.Model) -> ir.Model:
    """The model of onnx-ir, as `inline_functions`."""
    return to_ir(inline_functions(to_proto(model))) if model.functions else model


def _inlined(model: ModelProto) -> ModelProto:
    """Call onnx's inliner, which converts functions of other versions only where the types of all values are known."""
    from onnx import inliner

    versions = {plain_domain(each.domain): each.version for each in model.opset_import}
    imports = [each for function in model.functions for each in function.opset_import]
    if all(versions.get(plain_domain(each.domain), each.version) == each.version for each in imports):
        inlined: ModelProto = inliner.inline_local_functions(model)
        return inlined
    inlined = inliner.inline_local_functions(_with_types(model), convert_version=True)
    drop_weight_types(inlined)
    return inlined


def _with_types(model: ModelProto) -> ModelProto:
    """A copy of the model that declares the types of all values, also of weights."""
    typed = shape_inference.infer_shapes(model)
    for tensor in typed.graph.initializer:
        typed.graph.value_info.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return typed


def expand_operators(model: ModelProto, op_types: Collection[str], opset: int) -> ModelProto:
    """Replace operators of ONNX, at this opset, that are defined by others with their definitions."""
    from onnx import inliner

    used = {node.op_type for node in nodes(model) if node.op_type in op_types and is_standard(node)}
    defaults: dict[FunctionId, list[AttributeProto]] = {}
    for op_type in used:
        attributes = onnx.defs.get_schema(op_type, opset).attributes.values()
        stated = [attribute.default_value for attribute in attributes if attribute.default_value.name]
        defaults |= {(domain, op_type, ""): stated for domain in DEFAULT_DOMAINS}
    _state_defaults(model, defaults)
    ids = [("", op_type) for op_type in op_types]

    def expand(light: ModelProto) -> ModelProto:
        typed = _with_types(light)
        expanded: ModelProto = inliner.inline_selected_functions(typed, ids, inline_schema_functions=True)
        drop_weight_types(expanded)
        return expanded

    return call_without_weights(expand, model)


def _state_defaults(model: ModelProto, defaults: Mapping[FunctionId, Iterable[AttributeProto]]) -> None:
    """Write the attributes that calls of these functions leave to their defaults, in place."""
    for node in nodes(model):
        stated = names_of(node.attribute)
        for attribute in defaults.get((node.domain, node.op_type, node.overload), ()):
            if attribute.name not in stated:
                node.attribute.append(attribute)
