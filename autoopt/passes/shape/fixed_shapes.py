"""Models made for fixed sizes: given ones, or those that data have in common, with the inputs that never change."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from autoopt.json_codec import JsonValue
from autoopt.model.lazy_imports import ir, ir_passes, np
from autoopt.passes.base import Pass, PassContext, Refused, Retry
from autoopt.passes.base.contract import RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import caller_inputs
from autoopt.passes.onnx_tools.libraries import apply_ir_passes, fold_ir_constants
from autoopt.passes.onnx_tools.values import find_values, given_inputs
from autoopt.passes.shape.inference import RecordsTypes
from autoopt.registry import Minimum

if TYPE_CHECKING:
    from onnx import ModelProto


class FixInputShape(RecordsTypes):
    """Gives inputs fixed shapes, such as `{"input": [1, 3, 224, 224]}`, and records the shapes that follow from them.

    The model then accepts only these shapes. A named dimension, such as `batch`, gets its size in the whole model.
    Inputs not listed in `shapes` get `open_dims` for every dimension that is still open.
    """

    libraries = ("onnx", "onnx-ir")

    shapes: Annotated[dict[str, list[int]], "fixed shapes by input name"] = {}
    open_dims: Annotated[int, Minimum(1), "size of the open dimensions of all other inputs"] = 1

    def run(self, model: ir.Model) -> ir.Model | None:
        inputs = given_inputs(model.graph)
        find_values(self.shapes, inputs, "input")
        open_unknown_sizes(model)
        before = [value.shape for value in inputs]
        for value in sorted(inputs, key=lambda value: value.name not in self.shapes):
            old, sizes = value.shape or (), self._sizes(value)
            if sizes is not None:
                fix_sizes(value, sizes)
            for size, new in zip(old, value.shape or (), strict=True):
                _fix_name(model, size, fixed_size(new))
        if [value.shape for value in inputs] == before:
            return None
        return with_inferred_shapes(model)

    def _sizes(self, value: ir.Value) -> list[int] | None:
        """The sizes to give to an input; None if it has no shape to fix."""
        if str(value.name) in self.shapes:
            return self.shapes[str(value.name)]
        if not value.shape or not isinstance(value.type, ir.TensorType):
            return None
        return [fixed_size(size) or self.open_dims for size in value.shape]


class FixDimParam(RecordsTypes):
    """Gives a named dimension, such as `batch`, a fixed size in the whole model."""

    libraries = ("onnx", "onnx-ir")

    dim_param: Annotated[str, "name of the dimension; empty: the first open dimension of the first input"] = ""
    value: Annotated[int, Minimum(1), "size of the dimension"] = 1

    def run(self, model: ir.Model) -> ir.Model | None:
        names: list[str] = []
        for value in given_inputs(model.graph):
            if isinstance(value.type, ir.TensorType):
                names += [size.value for size in value.shape or () if isinstance(size, ir.SymbolicDim) and size.value]
        name = self.dim_param or next(iter(names), "")
        if not name:
            return None
        if name not in names:
            available = ", ".join(dict.fromkeys(names)) or "none"
            raise Refused(f"no input has a dimension named {name!r}; named dimensions: {available}")
        _fix_name(model, ir.SymbolicDim(name), self.value)
        return with_inferred_shapes(model)


def _fix_name(model: ir.Model, dimension: int | ir.SymbolicDim, new: int) -> None:
    """Fix all dimensions of the name of this one, in place; one that is fixed or has no name says nothing."""
    if isinstance(dimension, ir.SymbolicDim) and dimension.value:
        for value in _values(model):
            value.shape = ir.Shape([new if size == dimension else size for size in value.shape or ()])


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """The tensors of known rank in all graphs. Those in a sequence may differ in size."""
    for graph in model.graphs():
        for value in itertools.chain(graph.inputs, *(node.outputs for node in graph)):
            if value.shape is not None and isinstance(value.type, ir.TensorType):
                yield value


def open_unknown_sizes(model: ir.Model) -> None:
    """Leave out sizes that stand for unknown ones, -1 and ?, in place: tools take them for equal sizes."""
    for value in _values(model):
        sizes = [size if isinstance(size, int) else size.value for size in value.shape or ()]
        value.shape = ir.Shape(
            [None if size == "?" or (isinstance(size, int) and size < 0) else size for size in sizes]
        )


def fixed_size(size: int | ir.SymbolicDim) -> int:
    """The size of a dimension; 0 if it is open."""
    return size if isinstance(size, int) else 0


def fix_sizes(value: ir.Value, sizes: Sequence[int | None]) -> None:
    """Fix the sizes of an input, in place; None leaves one as it is.

    Raises:
        Refused: the input has another number of sizes, or another one in a place.
    """
    shape = () if value.shape is None else value.shape
    pairs = list(zip(shape, sizes, strict=False))
    if len(shape) != len(sizes) or any(new is not None and fixed_size(old) not in (0, new) for old, new in pairs):
        raise Refused(f"input {value.name!r} cannot have the shape {list(sizes)}; the model has {value.shape}")
    value.shape = ir.Shape([old if new is None else new for old, new in pairs])


def with_inferred_shapes(model: ir.Model) -> ir.Model:
    """Record the inner and output shapes that follow from fixed input shapes."""
    return apply_ir_passes(model, ir_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False))


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
    count: int = 0

    def add(self, array: np.ndarray) -> None:
        self.count += 1
        self.constant = self.constant and np.array_equal(self.first, array)
        pairs = zip(self.sizes, array.shape, strict=False)
        self.sizes = [old if old == new else None for old, new in pairs]

    @property
    def is_constant(self) -> bool:
        from autoopt.data.dataset import MIN_ITEMS, may_be_constant

        return self.constant and self.count >= MIN_ITEMS and may_be_constant(self.first)

    def fixes(self, value: ir.Value) -> bool:
        """Tell if the sizes fix an open dimension of an input."""
        if value.shape is None or len(value.shape) != len(self.sizes):
            return False
        return any(new and not fixed_size(old) for old, new in zip(value.shape, self.sizes, strict=True))


def _common_contract(inputs: Sequence[ir.Value], context: PassContext) -> Retry | None:
    """Ask to run again with what all calibration items have in common; None if the model already demands it."""
    if context.calibration is None:
        raise Refused("needs values or shapes, or calibration data to take them from")
    common = _in_common(context.calibration())
    values: dict[str, JsonValue] = {}
    shapes: dict[str, JsonValue] = {}
    for value in inputs:
        name, found = str(value.name), common.get(str(value.name))
        if found is not None and found.is_constant:
            values[name] = found.first.tolist()
        elif found is not None and found.fixes(value):
            shapes[name] = list(found.sizes)
    if len(values) == len(inputs) or not (values or shapes):
        return None
    return Retry("values and sizes taken from the calibration data", {"values": values, "shapes": shapes})


def _in_common(feeds: Iterable[Mapping[str, np.ndarray]]) -> dict[str, _Common]:
    """The common shape and values of all arrays of an input, by the name of the input."""
    common: dict[str, _Common] = {}
    for feed in feeds:
        for name, array in feed.items():
            common.setdefault(name, _Common(array, list(array.shape))).add(array)
    return common
