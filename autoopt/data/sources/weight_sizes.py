"""Sizes of open dimensions that a model's weights require: channels of convolutions, sides by a table of positions.

A vision transformer cuts an image into patches with a convolution and adds a vector for each patch, from a table. Sides
of other images than that of the table do not fit, unless the model interpolates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING, Final

from autoopt.data.fit import InputSpec
from autoopt.model.tables import SAME_SHAPE, constant_shapes, origins

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

MOST_EXTRA_POSITIONS: Final = 2
"""Positions before those of the patches: of the class, and of a teacher."""
HANDING_ON: Final = ("Cast", "Gather", "Identity", "Reshape", "Slice", "Unsqueeze")
"""Operators between a table and the sum, as exporters write them."""


@dataclass(frozen=True)
class _Convolution:
    """A convolution that reads an input of the model."""

    source: str
    """Name of the input."""
    node: NodeProto
    weight: tuple[int, ...]
    """Shape of its weights: features, channels of a group, kernel."""

    @property
    def channels(self) -> int:
        return self.weight[1] * next((item.i for item in self.node.attribute if item.name == "group"), 1)

    @property
    def patch(self) -> int | None:
        """Side of the patches that it cuts an image into; None if it does something else."""
        strides = next((tuple(item.ints) for item in self.node.attribute if item.name == "strides"), ())
        is_square = len(self.weight) == 4 and self.weight[2] == self.weight[3]
        return self.weight[2] if is_square and strides == self.weight[2:] and strides[0] > 1 else None


def with_channels(graph: GraphProto, specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Fill in the open channels of inputs that a convolution reads."""
    channels = {convolution.source: convolution.channels for convolution in _convolutions(graph)}
    filled = []
    for spec in specs:
        shape = spec.shape
        if spec.name in channels and shape is not None and len(shape) > 2 and not isinstance(shape[1], int):
            spec = replace(spec, shape=(shape[0], channels[spec.name], *shape[2:]))
        filled.append(spec)
    return tuple(filled)


def sides_by_positions(graph: GraphProto) -> dict[str, int]:
    """Side of the square images that the tables of positions are for, by the input's name."""
    sides: dict[str, int] = {}
    for convolution in _convolutions(graph):
        if convolution.patch is not None:
            patches = _patches_of_table(graph, convolution)
            if patches is not None:
                sides[convolution.source] = patches * convolution.patch
    return sides


def _convolutions(graph: GraphProto) -> Iterator[_Convolution]:
    inputs, shapes = origins(graph, SAME_SHAPE), constant_shapes(graph)
    for node in graph.node:
        if node.op_type == "Conv" and node.input[0] in inputs and node.input[1] in shapes:
            yield _Convolution(inputs[node.input[0]], node, shapes[node.input[1]])


def _patches_of_table(graph: GraphProto, convolution: _Convolution) -> int | None:
    """Patches along a side of the image, by the first table with a vector for each that is added to them."""
    tables, seen = constant_shapes(graph), {convolution.node.output[0]}
    for node in graph.node:
        behind = not seen.isdisjoint(node.input)
        if node.op_type == "Add" and behind:
            for name in node.input:
                patches = _square_patches(tables.get(name, ()), features=convolution.weight[0])
                if name not in seen and patches is not None:
                    return patches
        if behind:
            seen.update(node.output)
        elif node.op_type in HANDING_ON and node.input and node.input[0] in tables:
            tables[node.output[0]] = tables[node.input[0]]
    return None


def _square_patches(table: Sequence[int], features: int) -> int | None:
    """Side of the square of patches that a table has positions for; None for other weights."""
    sizes = [size for size in table if size != 1]
    if len(sizes) != 2 or sizes[1] != features:
        return None
    for extra in range(MOST_EXTRA_POSITIONS + 1):
        side = isqrt(max(0, sizes[0] - extra))
        if side > 1 and side * side == sizes[0] - extra:
            return side
    return None
