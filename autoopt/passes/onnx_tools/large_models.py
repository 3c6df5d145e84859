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
BYTES_THAT_STAY: Final = 1 << 27
"""The largest weights are taken out until the rest has at most this many bytes."""


def call_without_large_weights(tool: Callable[[ModelProto], Result], model: ModelProto) -> Result:
    """Call a tool on a model or an outline, without its largest weights if the model is too large to be serialized.

    During the call they are inputs of the graph: the tool knows their types and shapes, and treats their values as
    unknown. The tool may change a small model in place, but not a large one. External data must be in the working
    directory. What callers pass stays as it was, whatever the tool does to inputs.

    Raises:
        Refused: the weights are too large and lie elsewhere: in Constant nodes or in bodies of If, Loop and Scan.
    """
    model = graphs.sort_nodes(model)  # most tools take nodes in order only
    inputs = deepcopy(graphs.caller_inputs(model))
    if not graphs.is_large(model):
        load_weights(model)
        result = tool(model)
    else:
        result = _call_without(_largest_initializers(model), tool, model)
    if result is not None:
        graphs.restore_inputs(inputs, result)
    return result


def _call_without(large: list[TensorProto], tool: Callable[[ModelProto], Result], model: ModelProto) -> Result:
    """Call a tool on a copy of the model that lacks some weights."""
    light = _with_inputs_for(large, model)
    load_weights(light)
    result = tool(light)
    if result is not None:
        _put_back(large, result)
    return result


def inline_functions(model: ModelProto) -> ModelProto:
    """Replace calls of the model's own functions with their bodies."""
    import onnx.inliner

    if not model.functions:
        return model
    return call_without_large_weights(onnx.inliner.inline_local_functions, model)


def refuse_invalid(model: ModelProto, reason: str) -> None:
    """Run the full checker on a model that a library is known to get wrong at times.

    Raises:
        Refused: the model is invalid; `reason` opens the text.
    """
    try:
        call_without_large_weights(partial(onnx.checker.check_model, full_check=True), model)
    except Refused:
        raise
    except Exception as error:  # ValidationError, InferenceError
        raise Refused(f"{reason}: {error}") from error


def _largest_initializers(model: ModelProto) -> list[TensorProto]:
    """The initializers to take out, largest first."""
    sizes = [(packed_bytes(tensor) or 0, index) for index, tensor in enumerate(model.graph.initializer)]
    remaining = weight_bytes(model)
    large = []
    for size, index in sorted(sizes, reverse=True):
        if remaining <= BYTES_THAT_STAY:
            break
        remaining -= size
        large.append(model.graph.initializer[index])
    if remaining > graphs.EXTERNAL_DATA_BYTES:
        raise Refused(f"{remaining} bytes of weights lie in Constant nodes or bodies; apply lift_constants first")
    return large


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


def _put_back(large: Iterable[TensorProto], result: ModelProto) -> None:
    """Turn the inputs that stand for weights back into weights, and drop those that nothing reads."""
    used = graphs.read_names(result.graph)
    names = set()
    for tensor in large:
        names.add(tensor.name)
        if tensor.name in used:
            result.graph.initializer.append(tensor)
    inputs = [value for value in result.graph.input if value.name not in names]
    graphs.replace_items(result.graph.input, inputs)
