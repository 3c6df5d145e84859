"""Operators computed by others that CPUs run faster, each with the rules of one module of `rewrites`."""

from __future__ import annotations

from autoopt.model.lazy_imports import ir
from autoopt.passes.fusion.weight_folding import Folding
from autoopt.passes.onnx_tools.libraries import apply_rules


class HardSigmoidFusion(Folding):
    """Joins the Add, Clip and Div of a hard sigmoid or hard swish, as mobile networks have them, into HardSigmoid."""

    needs_ops = ("Clip",)

    def run(self, model: ir.Model) -> ir.Model | None:
        # Late: the rules need onnxscript, which planning does not import.
        from autoopt.passes.rewrites.activation import hard_sigmoid_rules

        return apply_rules(model, hard_sigmoid_rules())


class StftToConv(Folding):
    """Computes short-time Fourier transforms (STFT) of real signals with convolutions, which CPUs run much faster."""

    version = 2
    needs_ops = ("STFT",)

    def run(self, model: ir.Model) -> ir.Model | None:
        from autoopt.passes.rewrites.as_convolution import StftAsConv

        return apply_rules(model, [StftAsConv.rule(assume=frozenset(), chunks=1)])


class ConvTransposeToConv(Folding):
    """Computes transposed convolutions of images whose kernels overlap with convolutions, which have an 8-bit form.

    Each convolution computes the pixels of one place in all blocks of the result, and DepthToSpace puts them together.
    """

    version = 2
    needs_ops = ("ConvTranspose",)
    accelerators = ("CPUExecutionProvider",)

    def run(self, model: ir.Model) -> ir.Model | None:
        from autoopt.passes.rewrites.as_convolution import ConvTransposeAsConvs

        return apply_rules(model, [ConvTransposeAsConvs.rule(assume=frozenset(), chunks=1)])
