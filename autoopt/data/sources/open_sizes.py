"""Sizes of the open dimensions of inputs that are made up: those that the model is meant for, as far as it tells.

Exporters write them into the metadata; strides, fixed dimensions and outputs tell text lines, classifiers and detectors
apart. Sounds, spectra and tokens have usual sizes. Dimensions that no rule knows are left to the names in `synthetic`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING, Final, NamedTuple

from autoopt.data.fit import InputSpec
from autoopt.model.roles import Dimension, Role, names_with
from autoopt.model.tensors import SAME_SHAPE, constant_shapes, origins

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

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


def with_features(graph: GraphProto, specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Fill in the open channels of inputs that a convolution reads, and the features of those that a product reads."""
    channels = {convolution.source: convolution.channels for convolution in _convolutions(graph)}
    features = _features(graph)
    filled = []
    for spec in specs:
        dims = spec.dims
        if spec.name in channels and len(dims) > 2 and 1 in spec.open_axes:
            spec = replace(spec, shape=(dims[0], channels[spec.name], *dims[2:]))
        elif spec.name in features and len(dims) > 1 and len(dims) - 1 in spec.open_axes:
            spec = replace(spec, shape=(*dims[:-1], features[spec.name]))
        filled.append(spec)
    return tuple(filled)


def _features(graph: GraphProto) -> dict[str, int]:
    """The size of the last axis of inputs that a recurrent layer or a product with weights reads."""
    inputs, shapes = origins(graph, (*SAME_SHAPE, "Unsqueeze")), constant_shapes(graph)
    features = {}
    for node in graph.node:
        weight = shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
        if len(weight) < 2 or node.input[0] not in inputs:
            continue
        if node.op_type in ("LSTM", "GRU", "RNN"):
            features[inputs[node.input[0]]] = weight[-1]
        elif node.op_type == "MatMul":
            features[inputs[node.input[0]]] = weight[-2]
    return {name: size for name, size in features.items() if size > 1}


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


SAMPLE_RATE: Final = 16_000


class UsualSize(NamedTuple):
    """The usual size of an open dimension, in words too."""

    size: int
    text: str


SOUND: Final = UsualSize(2 * SAMPLE_RATE, "2 s of sound at 16 kHz")
PIECE: Final = UsualSize(512, "32 ms of sound at 16 kHz")
"""For models with recurrent state, which take a sound piece by piece."""
FRAMES: Final = UsualSize(200, "2 s of sound in frames of 10 ms")
TOKENS: Final = UsualSize(32, "32 tokens")
ONE_SOUND: Final = UsualSize(1, "of one sound")
"""Batch axis of a recurrent state, whose first axis is the layers."""
PIECES: Final = 32
"""Pieces of sound in one inference of a model that takes several."""
_PIECES: Final = re.compile(r"seq|len|frame|time")


def signal_sizes(
    specs: Sequence[InputSpec], roles: Mapping[str, Role], tables: Collection[str]
) -> dict[str, OpenSizes]:
    """Size the open dimensions of sounds, spectra, tokens and states, by input; others are left out.

    `tables` names the inputs that index into a table, as tokens do.
    """
    sizes_of = {}
    is_streamed = bool(names_with("state", roles))
    for spec in specs:
        role = roles[spec.name]
        usual = TOKENS if spec.name in tables else _usual_size(spec, role, is_streamed=is_streamed)
        if usual is None:
            continue
        axes = inner_open_axes(spec)
        if role.kind == "sound":
            axes = [axis for axis in spec.open_axes if axis in role.axes]
        by_axis, text = dict.fromkeys(axes, usual.size), usual.text
        if is_streamed and _PIECES.search(str(spec.dims[:1])):
            by_axis[0], text = PIECES, f"{PIECES} times {text}"
        if by_axis:
            sizes_of[spec.name] = OpenSizes(by_axis, text)
    return sizes_of


def _usual_size(spec: InputSpec, role: Role, *, is_streamed: bool) -> UsualSize | None:
    """The usual size of an input's open dimensions; None for an input of another kind."""
    match role.kind:
        case "state" if inner_open_axes(spec) == [1] and len(spec.dims) == 3:
            return ONE_SOUND
        case "sound":
            return PIECE if is_streamed else SOUND
        case "tokens" | "indices":
            return TOKENS
        case "spectrum":
            return FRAMES
    return None


def inner_open_axes(spec: InputSpec) -> list[int]:
    """The open axes behind the first one, which is the batch."""
    return [axis for axis in spec.open_axes if axis > 0]
