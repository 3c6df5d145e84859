"""Rules on layers: scales and shifts folded into convolutions, others computed by convolutions, fused ones split."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import onnx_ir as ir

from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN
from autoopt.passes.rewrites.rule import Rule, constant, int64_tensor, is_float, rank, scalar, static_dim, tensor_like

if TYPE_CHECKING:
    from autoopt.passes.rewrites.rule import Builder, Match, Pattern, Tape

Affine: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Weights of shape (M, C / group, *kernel) and bias of shape (M,) of a convolution."""


class ConvFolding(Rule):
    """The common part: a convolution with fixed weights and a constant, one number or one for each channel."""

    commutes = True

    def guard(self, context: Match, *, x: ir.Value, w: ir.Value, c: ir.Value, conv: ir.Value) -> str:
        node = conv.producer()
        weights, factors = constant(w), constant(c)
        if node is None or weights is None or factors is None or not is_float(w):
            return "the weights or the constant are not fixed floats"
        bias: np.ndarray | None = np.zeros(weights.shape[0])
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            bias = constant(node.inputs[2])
        if bias is None:
            return "the bias is not fixed"
        per_channel = _per_channel(factors, weights.ndim, self.channels(node, weights))
        if per_channel is None:
            return "the constant is not one number for each channel"
        self._node = node
        folded_weights, folded_bias = self.fold(
            node, weights.astype(np.float64), bias.astype(np.float64), per_channel.astype(np.float64)
        )
        self._weights, self._bias = tensor_like(w, folded_weights), tensor_like(w, folded_bias)
        if not (np.isfinite(self._weights.numpy()).all() and np.isfinite(self._bias.numpy()).all()):
            return "the folded weights are not finite"
        return self.objection(node)

    def objection(self, node: ir.Node) -> str:
        """Reason why the rule cannot fold into this convolution; empty if it can."""
        return ""

    def channels(self, node: ir.Node, weights: np.ndarray) -> int:
        """Number of channels on the side of the constant."""
        return int(weights.shape[0])

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        """Fold in one number for each channel."""
        raise NotImplementedError

    def rewrite(self, op: Tape, x: ir.Value, w: ir.Value, c: ir.Value, conv: ir.Value) -> ir.Value:
        # Unique: the names of earlier foldings are part of that of `w`.
        name = f"{w.name}_{type(self).__name__}_{conv.name}"
        weights = op.initializer(self._weights, name=name)
        bias = op.initializer(self._bias, name=f"{name}_bias")
        return op.Conv(x, weights, bias, **self._node.attributes)


class ScaleAfter(ConvFolding):
    """`Conv(x) * c` -> `Conv(x)`."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, c: Pattern) -> Pattern:
        return op.Mul(op.Conv(x, w, _allow_other_inputs=True, _outputs=["conv"]), c)

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        return weights * factors.reshape(-1, *[1] * (weights.ndim - 1)), bias * factors


class ShiftAfter(ConvFolding):
    """`Conv(x) + c` -> `Conv(x)`."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, c: Pattern) -> Pattern:
        return op.Add(op.Conv(x, w, _allow_other_inputs=True, _outputs=["conv"]), c)

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        return weights, bias + factors


class ScaleBefore(ConvFolding):
    """`Conv(x * c)` -> `Conv(x)`; zero padding is not affected by the scale."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, c: Pattern) -> Pattern:
        return op.Conv(op.Mul(x, c), w, _allow_other_inputs=True, _outputs=["conv"])

    def channels(self, node: ir.Node, weights: np.ndarray) -> int:
        return int(weights.shape[1] * node.attributes.get_int("group", 1))

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        return weights * _for_inputs(node, weights, factors), bias


class ShiftBefore(ScaleBefore):
    """`Conv(x + c)` -> `Conv(x)`, if nothing is padded: the padding would not be shifted."""

    def pattern(self, op: Builder, x: Pattern, w: Pattern, c: Pattern) -> Pattern:
        return op.Conv(op.Add(x, c), w, _allow_other_inputs=True, _outputs=["conv"])

    def objection(self, node: ir.Node) -> str:
        is_padded = any(node.attributes.get_ints("pads", ()))
        if is_padded or node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return "the convolution pads its input"
        return ""

    def fold(self, node: ir.Node, weights: np.ndarray, bias: np.ndarray, factors: np.ndarray) -> Affine:
        shifts = weights * _for_inputs(node, weights, factors)
        return weights, bias + shifts.sum(axis=tuple(range(1, weights.ndim)))


def _for_inputs(node: ir.Node, weights: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Factors of the input channels in a shape that broadcasts to the weights: (M, C / group, 1, ...)."""
    group = node.attributes.get_int("group", 1)
    by_group = np.repeat(factors.reshape(group, -1), weights.shape[0] // group, axis=0)
    return by_group.reshape(*by_group.shape, *[1] * (weights.ndim - 2))


def _per_channel(array: np.ndarray, rank: int, channels: int) -> np.ndarray | None:
    """The constant as one number for each channel, of shape (channels,); None if it varies otherwise."""
    if array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if shape[1] not in (1, channels) or any(size != 1 for axis, size in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(array.reshape(-1), (channels,))


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
        taps = _window(*[*node.inputs[2:], None, None][:2])
        if taps is None:
            return "the window is computed, or shorter than the frame"
        bins = taps.size
        if node.attributes.get_int("onesided", 1):
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


def _window(window: ir.Value | None, length: ir.Value | None) -> np.ndarray | None:
    """The fixed window of a transform, as long as its frames; None if there is no such."""
    taps, size = constant(window), scalar(length)
    if window is None and size is not None:
        return np.ones(int(size), np.float32)
    return taps if taps is not None and (length is None or taps.size == size) else None


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
        if node.attributes.get_int("group", 1) != 1 or set(node.attributes.get_ints("dilations", [1])) != {1}:
            return "the kernel has groups or gaps"
        if "output_shape" in node.attributes or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
            return "the padding follows from the size of the result"
        self._stride, other_stride = node.attributes.get_ints("strides", [1] * IMAGE_AXES)
        if self._stride != other_stride:
            return "the strides differ"
        pads = node.attributes.get_ints("pads", [0] * 2 * IMAGE_AXES)
        begins, ends = np.reshape(pads, (2, IMAGE_AXES))
        overlaps = np.array(kernel.shape[2:]) - self._stride
        cut = begins + ends - node.attributes.get_ints("output_padding", [0] * IMAGE_AXES)
        if (overlaps < np.maximum(begins, 1)).any() or (overlaps != cut).any():
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


ACTIVATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Clip": (),
}
"""Attributes of activations, in the order of the fused layer's parameters. The bounds of Clip are inputs."""
STATED: Final = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")
"""Attributes of a fused layer that the layer alone does not have."""


class SplitFusedConv(Rule):
    """`FusedConv(x, w, b, z)` -> `activation(Conv(x, w, b) + z)`."""

    layer = "Conv"

    def pattern(self, op: Builder, x: Pattern) -> Pattern:
        others = {"_allow_other_inputs": True, "_allow_other_attributes": True}
        return getattr(op, f"Fused{self.layer}")(x, _domain=ORT_DOMAIN, **others)

    def guard(self, context: Match, *, x: ir.Value) -> str:
        self._node = context.root
        self._activation = self._node.attributes.get_string("activation", "")
        if self._activation not in ACTIVATIONS:
            return "the activation is unknown"
        return ""

    def rewrite(self, op: Tape, x: ir.Value) -> ir.Value:
        attributes = {name: value for name, value in self._node.attributes.items() if name not in STATED}
        value = getattr(op, self.layer)(*self._node.inputs[:3], **attributes)
        for added in self._node.inputs[3:]:
            if added is not None:
                value = op.Add(value, added)
        parameters = self.parameters(self._node)
        if self._activation == "Clip":
            bounds = [ir.Tensor(np.array(bound, np.float32)) for bound in parameters]
            return op.Clip(value, *(_weight(op, self._node, bound, number) for number, bound in enumerate(bounds)))
        if self._activation:
            stated = dict(zip(ACTIVATIONS[self._activation], parameters, strict=False))
            return getattr(op, self._activation)(value, **stated)
        return value

    def parameters(self, node: ir.Node) -> list[float]:
        """The parameters of the activation."""
        return list(node.attributes.get_floats("activation_params", ()))


class SplitFusedGemm(SplitFusedConv):
    """`FusedGemm(a, b, c)` -> `activation(Gemm(a, b, c))`."""

    layer = "Gemm"

    def parameters(self, node: ir.Node) -> list[float]:
        return [node.attributes[name].as_float() for name in STATED[2:] if name in node.attributes]


class SplitFusedMatMul(Rule):
    """`FusedMatMul(a, b)` -> `MatMul` of both, transposed where it says so, times its factor."""

    def pattern(self, op: Builder, a: Pattern, b: Pattern) -> Pattern:
        return op.FusedMatMul(a, b, _domain=ORT_DOMAIN, _allow_other_attributes=True)

    def guard(self, context: Match, *, a: ir.Value, b: ir.Value) -> str:
        self._node = node = context.root
        self._factor = node.attributes.get_float("alpha", 1.0)
        self._turns = node.attributes.get_int("transA", 0), node.attributes.get_int("transB", 0)
        if node.attributes.get_int("transBatchA", 0) or node.attributes.get_int("transBatchB", 0):
            return "it transposes the batch"
        if (self._turns[0] and rank(a) is None) or (self._turns[1] and rank(b) is None):
            return "the rank of a transposed value is unknown"
        if self._factor != 1.0 and a.dtype is None:
            return "the type of the factor is unknown"
        return ""

    def rewrite(self, op: Tape, a: ir.Value, b: ir.Value) -> ir.Value:
        factors = []
        for value, turn in zip((a, b), self._turns, strict=True):
            factors.append(self._transposed(op, value) if turn else value)
        product = op.MatMul(*factors)
        if self._factor == 1.0:
            return product
        return op.Mul(product, _weight(op, self._node, tensor_like(a, self._factor), "factor"))

    def _transposed(self, op: Tape, value: ir.Value) -> ir.Value:
        """A value with its last two axes exchanged."""
        fixed = constant(value)
        if fixed is not None:
            turned = np.ascontiguousarray(np.swapaxes(fixed, -1, -2))
            return _weight(op, self._node, ir.Tensor(turned), f"{value.name}_turned")
        axes = list(range(rank(value) or 0))
        return op.Transpose(value, perm=[*axes[:-2], axes[-1], axes[-2]])


def _weight(op: Tape, node: ir.Node, tensor: ir.Tensor, name: str | int) -> ir.Value:
    """A weight of the graph, where quantizers look for it, with a name of its own."""
    return op.initializer(tensor, name=f"{node.outputs[0].name}_{name}")
