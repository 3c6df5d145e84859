"""Functions, a model's own and those that define operators, replaced with their bodies.

onnx's inliner leaves out the attributes that a call does not state, although functions and operators have defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from autoopt.model.lazy_imports import helper, onnx, shape_inference
from autoopt.model.tensors import names_of, nodes, plain_domain
from autoopt.passes.onnx_tools.graphs import DEFAULT_DOMAINS, drop_weight_types, is_standard
from autoopt.passes.onnx_tools.large_models import call_without_weights

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto

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
