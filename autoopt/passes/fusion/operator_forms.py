"""Operators computed by others, each with the rules of one module of `rewrites`."""

from __future__ import annotations

from autoopt.model.lazy_imports import ir
from autoopt.model.plain_forms import FUSED_LAYERS
from autoopt.passes.base.conflicts import RUNTIME_BOUND
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


class SplitFusedLayers(Folding):
    """Splits FusedConv, FusedGemm and FusedMatMul, as onnxruntime saves optimized models, into operators of ONNX.

    Quantizers and simplifiers know only these operators. onnxruntime fuses them again when it loads the model.
    """

    version = 3
    needs_ops = tuple(FUSED_LAYERS)
    conflicts = RUNTIME_BOUND

    def run(self, model: ir.Model) -> ir.Model | None:
        from autoopt.passes.rewrites.fused_layers import split_rules

        return apply_rules(model, split_rules())
