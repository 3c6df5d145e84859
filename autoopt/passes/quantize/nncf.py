"""Quantisation by NNCF (extra `autoopt[nncf]`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.errors import one_line
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.cleanup.constants import folded
from autoopt.passes.onnx_tools.graphs import gained, op_counts
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.quantize.calibration_reader import Feeds
from autoopt.passes.quantize.ort_quantizer import INTEGER_OPS
from autoopt.passes.quantize.static import CONFLICTS, NEEDS_OPS
from autoopt.passes.quantize.weight_only import WEIGHT_CONFLICTS
from autoopt.space import IGNORED, Boolean, Categorical, Conditional

if TYPE_CHECKING:
    from onnx import ModelProto


def library() -> Any:
    """NNCF, with its usage statistics switched off, which it sends without asking."""
    os.environ.setdefault("NNCF_CI", "1")
    import nncf

    return nncf


class NncfQuantization(Pass):
    """8-bit post-training quantisation by NNCF, with bias correction and activation smoothing.

    Slower than `static_quantization` and often more accurate on transformers. Constants are folded first: NNCF takes
    biases for constants. Where it cannot estimate the bias error exactly, the quick estimate is taken.
    """

    family: ClassVar[str] = "quantize"
    tolerance = "lossy"
    needs_data = True
    requires = ("ir_upgrade", "shape_inference")
    conflicts = CONFLICTS
    accelerators = ("CPUExecutionProvider",)
    needs_ops = NEEDS_OPS
    libraries = ("nncf", "onnx", "onnx-ir", "onnxruntime", "onnxscript")
    version = 2
    extra = "nncf"
    aliases = ("nncf_ptq",)

    preset: Annotated[
        Literal["performance", "mixed"],
        Categorical("performance", "mixed"),
        "performance: all symmetric; mixed: asymmetric activations",
    ] = "performance"
    model_type: Annotated[
        Literal["transformer"] | None, Categorical(None, "transformer"), "transformer: keeps sensitive parts in float"
    ] = None
    fast_bias_correction: Annotated[bool, Boolean(), "the quick estimate of the bias error"] = True
    subset_size: Annotated[int, "calibration items used"] = 128
    smooth_quant_alpha: Annotated[
        float | None,
        Conditional("model_type", {"transformer": Categorical(None, 0.5, 0.95)}, default=IGNORED),
        "how much of the activations' outliers moves into the weights; null: NNCF's choice, -1 off",
    ] = None

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        nncf = library()

        feeds = list(Feeds(self.context, self.subset_size))
        before = op_counts(model)
        prepared = folded(at_least_opset(model, 13))
        try:
            with quiet():
                made: ModelProto = nncf.quantize(
                    prepared,
                    nncf.Dataset(feeds),
                    preset=nncf.QuantizationPreset(self.preset),
                    model_type=nncf.ModelType(self.model_type) if self.model_type else None,
                    fast_bias_correction=self.fast_bias_correction,
                    subset_size=self.subset_size,
                    advanced_parameters=self._advanced(),
                )
        except MemoryError:
            raise
        except Exception as error:  # NNCF raises what its steps happen to raise
            if not self.fast_bias_correction:
                return Retry(f"NNCF cannot estimate the bias error exactly: {error}", {"fast_bias_correction": True})
            raise Refused(f"NNCF cannot quantise this model: {one_line(str(error))}") from error
        return made if gained(before, made, INTEGER_OPS) else None

    def _advanced(self) -> Any:
        nncf = library()

        if self.smooth_quant_alpha is None:
            return None
        alphas = nncf.AdvancedSmoothQuantParameters(matmul=self.smooth_quant_alpha)
        return nncf.AdvancedQuantizationParameters(smooth_quant_alphas=alphas)


class NncfWeightCompression(Pass):
    """8- or 4-bit weights by NNCF, activations in float; only for models made of MatMul.

    ONNX Runtime rejects compressed convolutions, so models with Conv are refused.
    """

    family: ClassVar[str] = "quantize"
    tolerance = "lossy"
    requires = ("ir_upgrade", "shape_inference")
    conflicts = WEIGHT_CONFLICTS
    accelerators = ("CPUExecutionProvider",)
    needs_ops = ("MatMul", "Gemm")
    libraries = ("nncf", "onnx", "onnxruntime")
    extra = "nncf"
    aliases = ("nncf_weights",)

    mode: Annotated[
        Literal["int8_asym", "int8_sym", "int4_sym", "int4_asym"],
        Categorical("int8_asym", "int8_sym", "int4_sym", "int4_asym"),
        "bits, and whether ranges are centred on 0",
    ] = "int8_asym"
    ratio: Annotated[
        float,
        Conditional(
            "mode", {"int4_sym": Categorical(0.6, 0.8, 1.0), "int4_asym": Categorical(0.6, 0.8, 1.0)}, default=IGNORED
        ),
        "share of the weights in 4 bits, the rest in 8; only int4",
    ] = 1.0
    group_size: Annotated[
        int,
        Conditional(
            "mode", {"int4_sym": Categorical(32, 64, 128), "int4_asym": Categorical(32, 64, 128)}, default=IGNORED
        ),
        "weights that share a scale; only int4",
    ] = 64

    def run(self, model: ModelProto) -> ModelProto | None:
        nncf = library()

        before = op_counts(model)
        if before["Conv"] or before["ConvTranspose"]:
            raise Refused("onnxruntime rejects convolutions compressed by NNCF")
        options: dict[str, Any] = {}
        if self.mode.startswith("int4"):
            options = {"ratio": self.ratio, "group_size": self.group_size}
        prepared = at_least_opset(model, 21)
        try:
            with quiet():
                made: ModelProto = nncf.compress_weights(prepared, mode=nncf.CompressWeightsMode(self.mode), **options)
        except MemoryError:
            raise
        except Exception as error:  # NNCF raises what its steps happen to raise
            raise Refused(f"NNCF cannot compress this model: {one_line(str(error))}") from error
        return made if gained(before, made, ("DequantizeLinear", "MatMulNBits")) else None
