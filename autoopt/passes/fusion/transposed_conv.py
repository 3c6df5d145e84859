"""Transposed convolutions as convolutions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.passes.base import Pass
from autoopt.passes.fusion.weight_folding import FUSION_CONFLICTS
from autoopt.passes.onnx_tools.graphs import (
    attribute_values,
    constant_tensors,
    is_standard,
    new_name,
    replace_items,
    value_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnx import ModelProto, NodeProto, TensorProto

AXES = 2
"""Of images; DepthToSpace takes no others."""


class ConvTransposeToConv(Pass):
    """Computes transposed convolutions of images whose kernels overlap with convolutions, which have an 8-bit form.

    Each convolution computes the pixels of one place in all blocks of the result, and DepthToSpace puts them together.
    """

    needs_ops = ("ConvTranspose",)
    accelerators = ("CPUExecutionProvider",)
    conflicts = FUSION_CONFLICTS
    libraries = ("onnx",)

    def run(self, model: ModelProto) -> ModelProto | None:
        constants = constant_tensors(model.graph)
        names = value_names(model)
        nodes: list[NodeProto] = []
        for node in model.graph.node:
            layer = _layer(node, constants)
            if layer is None:
                nodes.append(node)
                continue
            convolutions = list(_convolutions(node, layer, names))
            for convolution, kernel in convolutions:
                model.graph.initializer.append(numpy_helper.from_array(kernel, convolution.input[1]))
                nodes.append(convolution)
            nodes += _joined(node, [convolution.output[0] for convolution, _ in convolutions], layer.stride, names)
        if len(nodes) == len(model.graph.node):
            return None
        replace_items(model.graph.node, nodes)
        return model


@dataclass(frozen=True)
class _Layer:
    """A transposed convolution whose result is `stride` times as large as its input."""

    kernel: np.ndarray
    stride: int
    begin: tuple[int, ...]
    """Padding at the beginning of each axis."""


@dataclass(frozen=True)
class _Taps:
    """The part of the kernel that one axis of a convolution takes, in the order of the pixels, and its padding."""

    taps: list[int]
    begin: int
    end: int


def _layer(node: NodeProto, constants: Mapping[str, TensorProto]) -> _Layer | None:
    """The transposed convolution of a node; None for any other node, and for one without an equal of this form."""
    if node.op_type != "ConvTranspose" or not is_standard(node) or node.input[1] not in constants:
        return None
    attributes = attribute_values(node)
    kernel = numpy_helper.to_array(constants[node.input[1]])
    plain = attributes.get("group", 1) == 1 and set(attributes.get("dilations", [1])) == {1}
    if kernel.ndim != AXES + 2 or not plain or attributes.keys() & {"output_shape", "auto_pad"} - _unset(attributes):
        return None
    strides = attributes.get("strides", [1] * AXES)
    pads = attributes.get("pads", [0] * 2 * AXES)
    more = attributes.get("output_padding", [0] * AXES)
    if strides[0] != strides[1]:
        return None
    for axis, size in enumerate(kernel.shape[2:]):
        overlap = size - strides[axis]
        if overlap < max(1, pads[axis]) or overlap != pads[axis] + pads[axis + AXES] - more[axis]:
            return None
    return _Layer(kernel, strides[0], tuple(pads[:AXES]))


def _unset(attributes: Mapping[str, object]) -> set[str]:
    """The attributes that state their default."""
    return {"auto_pad"} if attributes.get("auto_pad") == b"NOTSET" else set()


def _convolutions(node: NodeProto, layer: _Layer, names: set[str]) -> Iterator[tuple[NodeProto, np.ndarray]]:
    """The convolution of each place in a block, row by row, with its kernel."""
    places: list[list[_Taps]] = []
    for size, begin in zip(layer.kernel.shape[2:], layer.begin, strict=True):
        places.append([_taps(place, size, layer.stride, begin) for place in range(layer.stride)])
    for rows, columns in itertools.product(*places):
        kernel = layer.kernel[:, :, rows.taps][:, :, :, columns.taps].swapaxes(0, 1)
        output = new_name(f"{node.output[0]}_part", names)
        weight = new_name(f"{node.output[0]}_kernel", names)
        pads = [rows.begin, columns.begin, rows.end, columns.end]
        inputs = [node.input[0], weight, *node.input[2:]]
        yield helper.make_node("Conv", inputs, [output], output, pads=pads), np.ascontiguousarray(kernel)


def _taps(place: int, size: int, stride: int, begin: int) -> _Taps:
    """The part of a kernel that reaches one place of a block along an axis."""
    taps = list(range((place + begin) % stride, size, stride))[::-1]
    offsets = [(place + begin - tap) // stride for tap in taps]
    return _Taps(taps, -offsets[0], offsets[-1])


def _joined(node: NodeProto, parts: Sequence[str], stride: int, names: set[str]) -> list[NodeProto]:
    """Nodes that put the parts of the result together."""
    if len(parts) == 1:
        return [helper.make_node("Identity", parts, node.output, node.name)]
    channels = new_name(f"{node.output[0]}_parts", names)
    return [
        helper.make_node("Concat", parts, [channels], channels, axis=1),
        helper.make_node("DepthToSpace", [channels], node.output, node.name, blocksize=stride),
    ]
