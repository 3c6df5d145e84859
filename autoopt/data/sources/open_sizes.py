"""Sizes of the open dimensions of inputs that are made up: those that the model is meant for, as far as it tells.

Exporters write them into the metadata; strides, fixed dimensions and outputs tell text lines, classifiers and detectors
apart. Dimensions that no rule knows are left to the names in `synthetic`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.data.fit import InputSpec
from autoopt.data.sources.weight_sizes import sides_by_positions
from autoopt.model.roles import Dimension, Role

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

METADATA: Final = ("imgsz", "image_size", "input_size")
"""Keys under which exporters write one side, or height and width."""
LARGEST_SIDE: Final = 8192
"""Larger sides in the metadata are not believed: a picture of them would not fit into memory."""
CLASSIFIER_SIDE: Final = 224
"""Usual side of images for classifiers of ImageNet."""
DENSE_SIDE: Final = 640
"""Usual side of images for models with an output for each place: detectors and segmentation."""
DENSE_STRIDE: Final = 8
"""Total stride from which on a model sees whole objects; one below filters images, at a cost per pixel."""
LINE: Final = (48, 320)
"""Usual height and width of the image of a line of text."""
LINE_HEIGHT: Final = 64
"""Largest fixed height of such an image."""
UNKNOWN_STRIDE: Final = ("ConvTranspose", "Resize", "Upsample", "GlobalAveragePool", "ReduceMean", "Reshape", "Shape")


@dataclass(frozen=True)
class OpenSizes:
    """Sizes of an input's open dimensions by axis, and the reason, such as `imgsz in its metadata`."""

    by_axis: Mapping[int, int]
    reason: str


def open_sizes(model: ModelProto, inputs: Sequence[InputSpec], roles: Mapping[str, Role]) -> dict[str, OpenSizes]:
    """Size the open dimensions of images and their masks, by the input's name."""
    sizes_of = {}
    by_positions = sides_by_positions(model.graph)
    for spec in inputs:
        axes = roles[spec.name].axes
        sides = [spec.dims[axis] for axis in axes]
        if roles[spec.name].kind not in ("image", "mask") or all(isinstance(side, int) for side in sides):
            continue
        if spec.name in by_positions:
            sizes, reason = (by_positions[spec.name],) * 2, "its table of positions"
        else:
            sizes, reason = _image_size(model, sides)
        by_axis = {axis: size for axis, size in zip(axes, sizes, strict=True) if not isinstance(spec.dims[axis], int)}
        sizes_of[spec.name] = OpenSizes(by_axis, reason)
    return sizes_of


def _image_size(model: ModelProto, sides: Sequence[Dimension]) -> tuple[tuple[int, int], str]:
    """Height and width of an image of which at least one side is open, and the reason."""
    for entry in model.metadata_props:
        stated = _stated_sides(entry.value)
        if entry.key in METADATA and stated is not None:
            return stated, f"{entry.key} in the model's metadata"
    height = sides[0]
    if isinstance(height, int) and height <= LINE_HEIGHT:
        return (height, LINE[1]), "a line of text, by its height"
    for side in sides:
        if isinstance(side, int):
            return (side, side), "square, by its fixed side"
    vertical, horizontal = total_stride(model.graph)
    if vertical > horizontal:
        return LINE, "a line of text, by the model's strides"
    is_classifier = all(len(value.type.tensor_type.shape.dim) <= 2 for value in model.graph.output)
    if max(vertical, horizontal) < DENSE_STRIDE or is_classifier:
        return (CLASSIFIER_SIDE,) * 2, "assumed: the model names no size"
    return (DENSE_SIDE,) * 2, "assumed: usual for detectors and segmentation"


def _stated_sides(text: str) -> tuple[int, int] | None:
    """Read height and width, or one side for both, from a text such as `[320, 320]`; None for any other text."""
    numbers = re.findall(r"\d+", text)
    if len(numbers) not in (1, 2) or any(len(number) > len(str(LARGEST_SIDE)) for number in numbers):
        return None
    height, width = int(numbers[0]), int(numbers[-1])
    if min(height, width) == 0 or max(height, width) > LARGEST_SIDE:
        return None
    return height, width


def total_stride(graph: GraphProto) -> tuple[int, int]:
    """The largest reduction of height and of width between an input and any value.

    Behind operators whose factor is unknown, such as Resize or a global pool, the other inputs of the next join tell.
    """
    strides = {value.name: (1, 1) for value in graph.input}
    for node in graph.node:
        before = max((strides[name] for name in node.input if name in strides), default=None)
        if before is None or node.op_type in UNKNOWN_STRIDE:
            continue
        vertical, horizontal = _stride(node)
        for name in node.output:
            strides[name] = before[0] * vertical, before[1] * horizontal
    return max(vertical for vertical, _ in strides.values()), max(horizontal for _, horizontal in strides.values())


def _stride(node: NodeProto) -> tuple[int, int]:
    if node.op_type in ("Conv", "MaxPool", "AveragePool"):
        for attribute in node.attribute:
            if attribute.name == "strides" and len(attribute.ints) == 2:
                return attribute.ints[0], attribute.ints[1]
    return 1, 1
