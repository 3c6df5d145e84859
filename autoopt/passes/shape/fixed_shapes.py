"""Open dimensions made fixed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated

from autoopt.model.lazy_imports import ir, ir_passes
from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.libraries import apply_ir_passes
from autoopt.passes.onnx_tools.values import find_values, given_inputs
from autoopt.passes.shape.inference import RecordsTypes
from autoopt.registry import Minimum


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
            old = value.shape or ()
            if str(value.name) in self.shapes:
                fix_sizes(value, self.shapes[str(value.name)])
            elif old and isinstance(value.type, ir.TensorType):
                fix_sizes(value, [fixed_size(size) or self.open_dims for size in old])
            for size, new in zip(old, value.shape or (), strict=True):
                if isinstance(size, ir.SymbolicDim) and size.value:
                    _fix_name(model, size.value, fixed_size(new))
        if [value.shape for value in inputs] == before:
            return None
        return with_inferred_shapes(model)


class FixDimParam(RecordsTypes):
    """Gives a named dimension, such as `batch`, a fixed size in the whole model."""

    libraries = ("onnx", "onnx-ir")

    dim_param: Annotated[str, "name of the dimension; empty: the first open dimension of the first input"] = ""
    value: Annotated[int, Minimum(1), "size of the dimension"] = 1

    def run(self, model: ir.Model) -> ir.Model | None:
        inputs = [value for value in given_inputs(model.graph) if isinstance(value.type, ir.TensorType)]
        sizes = [size for value in inputs for size in value.shape or ()]
        names = [size.value for size in sizes if not isinstance(size, int) and size.value]
        name = self.dim_param or next(iter(names), "")
        if not name:
            return None
        if name not in names:
            available = ", ".join(dict.fromkeys(names)) or "none"
            raise Refused(f"no input has a dimension named {name!r}; named dimensions: {available}")
        _fix_name(model, name, self.value)
        return with_inferred_shapes(model)


def _fix_name(model: ir.Model, name: str, new: int) -> None:
    """Fix the dimensions of that name, in place."""
    for value in _values(model):
        value.shape = ir.Shape([new if size == name else size for size in value.shape or ()])


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
