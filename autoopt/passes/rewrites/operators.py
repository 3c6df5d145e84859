"""Rules that compute a layer with convolutions, and an activation with one operator."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from autoopt.passes.rewrites.rule import Rule, attribute, constant, int64_tensor, rank, scalar, static_dim, tensor_like

if TYPE_CHECKING:
    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape


IMAGE_AXES = 2
"""DepthToSpace takes no others."""


class StftAsConv(Rule):
    """`STFT(x)` of real signals -> `Conv(x)` with a kernel for real and imaginary part of each bin."""

    def pattern(self, op: Builder, x: Pattern, step: Pattern) -> Pattern:
        return op.STFT(x, step, _allow_other_inputs=True, _allow_other_attributes=True)

    def guard(self, context: Match, *, x: ir.Value, step: ir.Value) -> str:
        node = context.root
        self._step = scalar(step)
        # The runtime has convolutions of float32, but not of float64.
        if x.dtype != ir.DataType.FLOAT or self._step is None:
            return "not float32, or the step is computed"
        if rank(x) != 2 and (rank(x) != 3 or static_dim(x, 2) != 1):
            return "the signal may be complex"
        window, length = [*node.inputs[2:], None, None][:2]
        taps, size = constant(window), scalar(length)
        if window is None and size is not None:
            taps = np.ones(int(size), np.float32)
        if taps is None or (length is not None and taps.size != size):
            return "the window is computed, or shorter than the frame"
        bins = taps.size
        if attribute(node, "onesided", 1):
            bins = taps.size // 2 + 1
        angles = 2 * np.pi * (np.outer(np.arange(bins), np.arange(taps.size)) % taps.size) / taps.size
        parts = np.stack([taps * np.cos(angles), -taps * np.sin(angles)], axis=1)
        self._kernel = tensor_like(x, parts.reshape(2 * bins, 1, taps.size))
        self._split = int64_tensor([0, 0, bins, 2])
        spectrum = node.outputs[0]
        if spectrum.shape is not None:
            # Without a window, onnx infers the size of a spectrum of both sides.
            spectrum.shape = ir.Shape([*list(spectrum.shape)[:2], bins, 2])
        return ""

    def rewrite(self, op: Tape, x: ir.Value, step: ir.Value) -> ir.Value:
        assert self._step is not None
        if rank(x) == 2:
            signal = op.Unsqueeze(x, op.Constant(value=int64_tensor([1])))
        else:
            signal = op.Transpose(x, perm=[0, 2, 1])
        filtered = op.Conv(signal, op.initializer(self._kernel, name=f"{x.name}_spectrum"), strides=[int(self._step)])
        return op.Reshape(op.Transpose(filtered, perm=[0, 2, 1]), op.Constant(value=self._split))


class ConvTransposeAsConvs(Rule):
    """`ConvTranspose(x)` whose result is stride times as large as its input -> a Conv for each place in a block.

    The kernels must overlap: without an overlap, the runtime's own kernel is as fast.
    """

    def pattern(self, op: Builder, x: Pattern, w: Pattern) -> Pattern:
        return op.ConvTranspose(x, w, _allow_other_inputs=True, _allow_other_attributes=True)

    def guard(self, context: Match, *, x: ir.Value, w: ir.Value) -> str:
        node = context.root
        kernel = constant(w)
        if kernel is None or kernel.ndim != IMAGE_AXES + 2:
            return "the kernel is computed or none of images"
        if attribute(node, "group", 1) != 1 or set(attribute(node, "dilations", [1])) != {1}:
            return "the kernel has groups or gaps"
        if "output_shape" in node.attributes or attribute(node, "auto_pad", "NOTSET") != "NOTSET":
            return "the padding follows from the size of the result"
        self._stride, other_stride = attribute(node, "strides", [1] * IMAGE_AXES)
        pads = attribute(node, "pads", [0] * 2 * IMAGE_AXES)
        more = attribute(node, "output_padding", [0] * IMAGE_AXES)
        if self._stride != other_stride:
            return "the strides differ"
        for axis, size in enumerate(kernel.shape[2:]):
            overlap = size - self._stride
            if overlap < max(1, pads[axis]) or overlap != pads[axis] + pads[axis + IMAGE_AXES] - more[axis]:
                return "the kernels do not overlap, or the result has another size"
        self._kernel, self._begins = kernel, pads[:IMAGE_AXES]
        self._bias = node.inputs[2:]
        self._name = node.outputs[0].name
        return ""

    def rewrite(self, op: Tape, x: ir.Value, w: ir.Value) -> ir.Value:
        places: list[list[tuple[list[int], int, int]]] = []
        for size, begin in zip(self._kernel.shape[2:], self._begins, strict=True):
            places.append([_taps(place, size, self._stride, begin) for place in range(self._stride)])
        parts: list[ir.Value] = []
        for (rows, top, bottom), (columns, left, right) in itertools.product(*places):
            part = np.ascontiguousarray(self._kernel[:, :, rows][:, :, :, columns].swapaxes(0, 1))
            weight = op.initializer(ir.Tensor(part), name=f"{self._name}_kernel_{len(parts)}")
            parts.append(op.Conv(x, weight, *self._bias, pads=[top, left, bottom, right]))
        if len(parts) == 1:
            return parts[0]
        return op.DepthToSpace(op.Concat(*parts, axis=1), blocksize=self._stride)


def _taps(place: int, size: int, stride: int, begin: int) -> tuple[list[int], int, int]:
    """The part of a kernel that reaches one place of a block along an axis, and its padding at both ends."""
    taps = list(range((place + begin) % stride, size, stride))[::-1]
    offsets = [(place + begin - tap) // stride for tap in taps]
    return taps, -offsets[0], offsets[-1]


class HardSigmoid(Rule):
    """`Clip(x + b, 0, m) * (1 / m)` -> `HardSigmoid(x)`."""

    commutes = True
    scaled_by = "Mul"

    def pattern(self, op: Builder, x: Pattern, b: Pattern, d: Pattern) -> Pattern:
        return getattr(op, self.scaled_by)(_clip(op, x, b), d)

    def guard(self, context: Match, *, x: ir.Value, b: ir.Value, d: ir.Value, clip: ir.Value, **_: ir.Value) -> str:
        node = clip.producer()
        if node is None or len(node.inputs) != 3:
            return "a bound is missing"
        shift, smallest, largest, scale = scalar(b), scalar(node.inputs[1]), scalar(node.inputs[2]), scalar(d)
        if shift is None or smallest is None or largest is None or scale is None:
            return "a constant is not a fixed number"
        # CPUs have no kernel of HardSigmoid for other types.
        if x.dtype != ir.DataType.FLOAT:
            return "not float32"
        # A constant of shape (1,) would add a dimension to a scalar.
        if not rank(x):
            return "the rank is unknown or zero"
        expected = 1.0 / largest if self.scaled_by == "Mul" and largest else largest
        if smallest != 0 or largest <= 0 or not np.isclose(scale, expected, rtol=1e-6, atol=0):
            return "it is not a hard sigmoid"
        self._alpha, self._beta = 1.0 / largest, shift / largest
        return ""

    def rewrite(self, op: Tape, x: ir.Value, **_: ir.Value) -> ir.Value:
        return op.HardSigmoid(x, alpha=self._alpha, beta=self._beta)


class HardSigmoidByDiv(HardSigmoid):
    """`Clip(x + b, 0, m) / m` -> `HardSigmoid(x)`."""

    scaled_by = "Div"


class HardSwish(HardSigmoid):
    """`(y * Clip(x + b, 0, m)) * (1 / m)` -> `y * HardSigmoid(x)`; of hard swish, y is x."""

    def pattern(self, op: Builder, x: Pattern, y: Pattern, b: Pattern, d: Pattern) -> Pattern:  # type: ignore[override]  # one more value
        return getattr(op, self.scaled_by)(op.Mul(y, _clip(op, x, b)), d)

    def rewrite(self, op: Tape, x: ir.Value, **values: ir.Value) -> ir.Value:
        return op.Mul(values["y"], super().rewrite(op, x))


class HardSwishByDiv(HardSwish):
    """`(y * Clip(x + b, 0, m)) / m` -> `y * HardSigmoid(x)`."""

    scaled_by = "Div"


def _clip(op: Builder, x: Pattern, b: Pattern) -> Pattern:
    return op.Clip(op.Add(x, b), _allow_other_inputs=True, _outputs=["clip"])
