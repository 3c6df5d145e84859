"""Run tools on large models without the weights, which they would load or serialize."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from autoopt.model.io import load_weights
from autoopt.model.lazy_imports import helper, onnx
from autoopt.model.tensors import copy_fields, names_of, packed_bytes, weight_bytes
from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools import graphs

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

Result = TypeVar("Result")
"""A model or None."""
SHAPE_BYTES: Final = 1 << 16
"""Larger constants are no shapes, axes or scales, which tools read to infer types."""
MATRIX_BYTES: Final = 1 << 20
"""Smaller weights are loaded: tools look at the values of biases and factors."""


def call_without_weights(tool: Callable[[ModelProto], Result], model: ModelProto) -> Result:
    """Call a tool that reads no values of weights on a model or an outline without its weights.

    During the call they are inputs of the graph. The tool may change in place a model that has only small ones.
    External data must be in the working directory. What callers pass stays as it was, whatever the tool does to inputs.

    Raises:
        Refused: the weights are too large and lie elsewhere: in Constant nodes or in bodies of If, Loop and Scan.
    """
    return _keeping_inputs(partial(_call_without, tool), model)


def call_without_large_weights(tool: Callable[[ModelProto], Result], model: ModelProto) -> Result:
    """Call a tool on a model or an outline, without its weights if the model is too large to be serialized.

    During the call they are inputs of the graph: the tool knows their types and shapes, and treats their values as
    unknown. The tool may change a small model in place, but not a large one. External data must be in the working
    directory. What callers pass stays as it was, whatever the tool does to inputs.

    Raises:
        Refused: the weights are too large and lie elsewhere: in Constant nodes or in bodies of If, Loop and Scan.
    """

    def call(whole: ModelProto) -> Result:
        if graphs.is_large(whole):
            return _call_without(tool, whole)
        load_weights(whole)
        return tool(whole)

    return _keeping_inputs(call, model)


def call_on_references(tool: Callable[[ModelProto], Result], model: ModelProto) -> Result:
    """Call a tool that reads external data itself where it needs them, on a model or an outline.

    The matrices of an outline stay references, except for those that folding of constants reads. Otherwise the same as
    `call_without_large_weights`.
    """
    if graphs.is_large(model):
        return call_without_large_weights(tool, model)

    def call(whole: ModelProto) -> Result:
        folded = _foldable_weights(whole)
        load_weights(whole, chosen=lambda each: (packed_bytes(each) or 0) < MATRIX_BYTES or each.name in folded)
        return tool(whole)

    return _keeping_inputs(call, model)


def _keeping_inputs(call: Callable[[ModelProto], Result], model: ModelProto) -> Result:
    """Call a function on a model with its nodes in order, and declare the inputs and outputs of callers as before."""
    model = graphs.sort_nodes(model)  # most tools take nodes in order only
    inputs, outputs = deepcopy(graphs.caller_inputs(model)), deepcopy(model.graph.output)
    result = call(model)
    if result is not None:
        graphs.restore_inputs(inputs, result)
        graphs.restore_output_types(outputs, result)
    return result


def _call_without(tool: Callable[[ModelProto], Result], model: ModelProto) -> Result:
    """Call a tool on a model without the weights that are larger than shapes; its result gets them back."""
    weights = [tensor for tensor in model.graph.initializer if (packed_bytes(tensor) or 0) > SHAPE_BYTES]
    if not weights and not graphs.is_large(model):
        load_weights(model)
        return tool(model)
    light = _with_inputs_for(weights, model)
    if graphs.is_large(light):
        left = weight_bytes(light)
        raise Refused(f"{left} bytes of weights lie in Constant nodes or bodies; apply lift_constants first")
    load_weights(light)
    result = tool(light)
    if result is not None:
        _put_back(weights, model, result)
    return result


def _put_back(weights: Iterable[TensorProto], model: ModelProto, result: ModelProto) -> None:
    """Give the result of a tool the weights that it reads, at their places, in place of their inputs."""
    added = names_of(weights) - names_of(model.graph.input)
    graphs.replace_items(result.graph.input, [value for value in result.graph.input if value.name not in added])
    used = graphs.read_names(result.graph)
    result.graph.initializer.extend(tensor for tensor in weights if tensor.name in used)
    places = {tensor.name: place for place, tensor in enumerate(model.graph.initializer)}
    result.graph.initializer.sort(key=lambda tensor: places.get(tensor.name, len(places)))


def refuse_invalid(model: ModelProto, reason: str) -> None:
    """Run the full checker on a model that a library is known to get wrong at times.

    Raises:
        Refused: the model is invalid; `reason` opens the text.
    """
    try:
        call_without_weights(partial(onnx.checker.check_model, full_check=True), model)
    except Refused:
        raise
    except Exception as error:  # ValidationError, InferenceError
        raise Refused(f"{reason}: {error}") from error


def _foldable_weights(model: ModelProto) -> set[str]:
    """Names of the weights that nodes read which do not depend on the values of inputs, and those that bodies read."""
    varying = graphs.values_from_inputs(model)
    names: set[str] = set()
    for node in model.graph.node:
        if varying.isdisjoint(node.output):
            names.update(node.input)
        names.update(graphs.values_read(node) - set(node.input))
    return names


def _with_inputs_for(large: Iterable[TensorProto], model: ModelProto) -> ModelProto:
    """A copy of the model with inputs in place of some initializers, made without copying these."""
    names = names_of(large)
    light = type(model)()
    copy_fields(model, light, but="graph")
    copy_fields(model.graph, light.graph, but="initializer")
    light.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name not in names)
    inputs = names_of(model.graph.input)
    for tensor in large:
        if tensor.name not in inputs:
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            light.graph.input.append(value)
    return light
