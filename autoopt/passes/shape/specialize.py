"""Models specialized to data: inputs that never change become constants, sizes that never change become fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from autoopt.json_codec import JsonValue
from autoopt.model.lazy_imports import ir, np
from autoopt.passes.base import Pass, PassContext, Refused, Retry
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import caller_inputs
from autoopt.passes.onnx_tools.libraries import fold_ir_constants
from autoopt.passes.onnx_tools.values import find_values, given_inputs
from autoopt.passes.shape.fixed_shapes import fix_sizes, fixed_size, open_unknown_sizes, with_inferred_shapes

if TYPE_CHECKING:
    from onnx import ModelProto


class SpecializeInputs(Pass):
    """Makes inputs that never change constants, fixes sizes that never change, and folds what follows from both.

    The model then takes fewer inputs and only these sizes. Without `values` and `shapes`, both are what the calibration
    data have in common; a proposal for a bare model gives them.
    """

    depends_on = "model"
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir", "onnxscript", "onnxruntime")

    values: Annotated[dict[str, Any], "value of each input that becomes a constant, as nested lists"] = {}
    shapes: Annotated[dict[str, list[int | None]], "sizes by input name; null leaves a dimension open"] = {}

    def run(self, model: ir.Model) -> ir.Model | Retry | None:
        graph = model.graph
        inputs = given_inputs(graph)
        if not self.values and not self.shapes:
            return _common_contract(inputs, self.context)
        constants = find_values(self.values, inputs, "input")
        fixed = find_values(self.shapes, inputs, "input")
        if len(constants) == len(inputs):
            raise Refused("no input would be left")
        open_unknown_sizes(model)
        for value in fixed:
            fix_sizes(value, self.shapes[str(value.name)])
        for value in constants:
            value.const_value = ir.tensor(self._array(value), name=value.name)
            graph.inputs.remove(value)
            graph.register_initializer(value)
        model.ir_version = max(model.ir_version, 4)  # earlier versions require weights to be inputs
        return fold_ir_constants(with_inferred_shapes(model))

    def pinned(self, model: ModelProto) -> dict[str, np.ndarray]:
        values = [value for value in caller_inputs(model) if value.name in self.values]
        return {value.name: self._array(ir.serde.deserialize_value_info_proto(value, None)) for value in values}

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return {name: array for name, array in feeds.items() if name not in self.values}

    def _array(self, value: ir.Value) -> np.ndarray:
        """The constant for an input, in its type."""
        try:
            array = np.array(self.values[str(value.name)], value.dtype and value.dtype.numpy())
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"input {value.name!r} cannot have the value given: {error}") from error
        sizes = list(array.shape) if value.shape is None else list(map(fixed_size, value.shape))
        fits = len(sizes) == array.ndim and all(size in (0, own) for size, own in zip(sizes, array.shape, strict=True))
        if not fits:
            raise Refused(f"input {value.name!r} cannot have a value of shape {list(array.shape)}")
        return array


@dataclass
class _Common:
    """The value and the sizes that all arrays of one input have in common so far."""

    first: np.ndarray
    sizes: list[int | None]
    """None where they differ."""
    constant: bool = True
    count: int = 1

    def add(self, array: np.ndarray) -> None:
        self.count += 1
        self.constant = self.constant and np.array_equal(self.first, array)
        pairs = zip(self.sizes, array.shape, strict=False)
        self.sizes = [old if old == new else None for old, new in pairs]

    @property
    def is_constant(self) -> bool:
        from autoopt.data.dataset import MIN_ITEMS, may_be_constant

        return self.constant and self.count >= MIN_ITEMS and may_be_constant(self.first)


def _common_contract(inputs: Sequence[ir.Value], context: PassContext) -> Retry | None:
    """Ask to run again with what all calibration items have in common; None if the model already demands it."""
    if context.calibration is None:
        raise Refused("needs values or shapes, or calibration data to take them from")
    common_values = _common_values(context.calibration())
    values: dict[str, JsonValue] = {}
    shapes: dict[str, JsonValue] = {}
    for value in inputs:
        name = str(value.name)
        common = common_values.get(name)
        if common is None:
            continue
        if common.is_constant:
            values[name] = common.first.tolist()
        elif value.shape is not None and len(value.shape) == len(common.sizes):
            pairs = zip(value.shape, common.sizes, strict=True)
            if any(not fixed_size(old) and new for old, new in pairs):
                shapes[name] = list(common.sizes)
    if len(values) == len(inputs) or not (values or shapes):
        return None
    return Retry("values and sizes taken from the calibration data", {"values": values, "shapes": shapes})


def _common_values(feeds: Iterable[Mapping[str, np.ndarray]]) -> dict[str, _Common]:
    """The facts that all arrays of an input share, by the name of the input."""
    common: dict[str, _Common] = {}
    for feed in feeds:
        for name, array in feed.items():
            if name in common:
                common[name].add(array)
            else:
                common[name] = _Common(array, list(array.shape))
    return common
