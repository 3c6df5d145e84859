"""Models specialized to data: inputs that never change become constants, sizes that never change become fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from autoopt.json_codec import JsonValue
from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.model.tensors import by_name
from autoopt.passes.base import Pass, PassContext, Refused, Retry
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.onnx_tools.folding import fold_constants
from autoopt.passes.onnx_tools.graphs import caller_inputs, clear_unknown_dims, fixed_size, replace_items
from autoopt.passes.shape.fixed_shapes import infer_fixed_shapes

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto


class SpecializeInputs(Pass):
    """Makes inputs that never change constants, fixes sizes that never change, and folds what follows from both.

    The model then takes fewer inputs and only these sizes. Without `values` and `shapes`, both are what the calibration
    data have in common; a proposal for a bare model gives them.
    """

    target_bound = False
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnx-ir", "onnxscript", "onnxruntime")

    values: Annotated[dict[str, Any], "value of each input that becomes a constant, as nested lists"] = {}
    shapes: Annotated[dict[str, list[int | None]], "sizes by input name; null leaves a dimension open"] = {}

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        if not self.values and not self.shapes:
            return _common_contract(model, self.context)
        inputs = by_name(caller_inputs(model))
        for name in (*self.values, *self.shapes):
            if name not in inputs:
                raise Refused(f"the model has no input {name!r}; it has {', '.join(inputs)}")
        if len(self.values) == len(inputs):
            raise Refused("no input would be left")
        clear_unknown_dims(model)
        for name, shape in self.shapes.items():
            _fix(inputs[name], shape)
        for name in self.values:
            _make_constant(model, inputs[name], self._array(inputs[name]))
        model.ir_version = max(model.ir_version, 4)  # earlier versions require weights to be inputs
        return fold_constants(infer_fixed_shapes(model))

    def pinned(self, model: ModelProto) -> dict[str, np.ndarray]:
        pinned = {}
        for value in caller_inputs(model):
            if value.name in self.values:
                pinned[value.name] = self._array(value)
        return pinned

    def feeds(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        return {name: array for name, array in feeds.items() if name not in self.values}

    def _array(self, value: ValueInfoProto) -> np.ndarray:
        """The constant for an input, in its type."""
        tensor = value.type.tensor_type
        try:
            array = np.array(self.values[value.name], helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"input {value.name!r} cannot have the value given: {error}") from error
        dims = list(map(fixed_size, tensor.shape.dim))
        fits = len(dims) == array.ndim and all(dim in (0, size) for dim, size in zip(dims, array.shape, strict=True))
        if tensor.HasField("shape") and not fits:
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


def _common_contract(model: ModelProto, context: PassContext) -> Retry | None:
    """Ask to run again with what all calibration items have in common; None if the model already demands it."""
    if context.calibration is None:
        raise Refused("needs values or shapes, or calibration data to take them from")
    common_values = _common_values(context.calibration())
    values: dict[str, JsonValue] = {}
    shapes: dict[str, JsonValue] = {}
    for value in caller_inputs(model):
        common = common_values.get(value.name)
        if common is None:
            continue
        if common.is_constant:
            values[value.name] = common.first.tolist()
        elif _is_narrower(value, common.sizes):
            shapes[value.name] = list(common.sizes)
    if len(values) == len(caller_inputs(model)) or not (values or shapes):
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


def _is_narrower(value: ValueInfoProto, sizes: Sequence[int | None]) -> bool:
    """Tell if `sizes` fix a dimension that the input leaves open."""
    dims = value.type.tensor_type.shape.dim
    if len(dims) != len(sizes):
        return False
    return any(not fixed_size(dim) and size for dim, size in zip(dims, sizes, strict=True))


def _fix(value: ValueInfoProto, shape: list[int | None]) -> None:
    """Fix the sizes of an input, in place."""
    dims = value.type.tensor_type.shape.dim
    fits = len(dims) == len(shape) and all(
        size is None or fixed_size(dim) in (0, size) for dim, size in zip(dims, shape, strict=True)
    )
    if not fits:
        raise Refused(f"input {value.name!r} cannot have the shape {shape}")
    for dim, size in zip(dims, shape, strict=True):
        if size is not None:
            dim.dim_value = size


def _make_constant(model: ModelProto, value: ValueInfoProto, array: np.ndarray) -> None:
    """Turn an input into a weight, in place."""
    model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    replace_items(model.graph.input, [other for other in model.graph.input if other.name != value.name])
