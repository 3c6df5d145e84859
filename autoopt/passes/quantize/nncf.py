"""Quantization by NNCF (extra `autoopt[nncf]`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoopt.errors import one_line
from autoopt.passes.base import Pass, Refused, Retry
from autoopt.passes.onnx_tools.graphs import has_more_of, op_counts
from autoopt.passes.onnx_tools.libraries import fold_constants, quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.passes.quantize.ort_quantizer import INTEGER_OPS
from autoopt.passes.quantize.static import QUANTIZABLE_OPS, STATIC_CONFLICTS
from autoopt.passes.quantize.weight_only import WEIGHT_CONFLICTS
from autoopt.registry import Minimum
from autoopt.space import IGNORED, Boolean, Categorical, Conditional

if TYPE_CHECKING:
    from onnx import ModelProto


def import_nncf() -> Any:  # noqa: ANN401  a module
    """Import NNCF with its usage statistics disabled, which it otherwise sends without asking."""
    os.environ.setdefault("NNCF_CI", "1")
    import nncf

    return nncf


class NncfQuantization(Pass):
    """8-bit post-training quantization by NNCF, with bias correction and activation smoothing.

    Slower than `static_quantization` and often more accurate on transformers. Folds constants first, because NNCF
    assumes that biases are constant. If NNCF cannot estimate the bias error exactly, uses the fast estimate.
    """

    tolerance = "lossy"
    needs_data = True
    requires = ("ir_upgrade", "shape_inference")
    conflicts = STATIC_CONFLICTS
    accelerators = ("CPUExecutionProvider",)
    needs_ops = QUANTIZABLE_OPS
    libraries = ("nncf", "onnx", "onnx-ir", "onnxruntime", "onnxscript")
    version = 3
    aliases = ("nncf_ptq",)

    preset: Annotated[
        Literal["performance", "mixed"],
        Categorical("performance", "mixed"),
        "performance: all symmetric; mixed: asymmetric activations",
    ] = "performance"
    model_type: Annotated[
        Literal["transformer"] | None, Categorical(None, "transformer"), "transformer: keep sensitive parts in float"
    ] = None
    fast_bias_correction: Annotated[bool, Boolean(), "use the fast estimate of the bias error"] = True
    subset_size: Annotated[int, Minimum(1), "number of calibration items to use"] = 128
    smooth_quant_alpha: Annotated[
        float | None,
        Conditional("model_type", {"transformer": Categorical(None, 0.5, 0.95)}, default=IGNORED),
        "share of activation outliers to move into the weights; null: NNCF's default, -1: off",
    ] = None

    def run(self, model: ModelProto) -> ModelProto | Retry | None:
        nncf = import_nncf()

        feeds = list(CalibrationReader(self.context, self.subset_size))
        before = op_counts(model)
        prepared = fold_constants(at_least_opset(model, 13))
        model_type = nncf.ModelType(self.model_type) if self.model_type else None
        parameters = None
        if self.smooth_quant_alpha is not None:
            alphas = nncf.AdvancedSmoothQuantParameters(matmul=self.smooth_quant_alpha)
            parameters = nncf.AdvancedQuantizationParameters(smooth_quant_alphas=alphas)
        try:
            with quiet():
                quantized: ModelProto = nncf.quantize(
                    prepared,
                    nncf.Dataset(feeds),
                    preset=nncf.QuantizationPreset(self.preset),
                    model_type=model_type,
                    fast_bias_correction=self.fast_bias_correction,
                    subset_size=self.subset_size,
                    advanced_parameters=parameters,
                )
        except MemoryError:
            raise
        except Exception as error:  # NNCF passes on any exception of its steps
            if not self.fast_bias_correction:
                return Retry(f"NNCF cannot estimate the bias error exactly: {error}", {"fast_bias_correction": True})
            raise Refused(f"NNCF cannot quantize this model: {one_line(str(error))}") from error
        if not has_more_of(INTEGER_OPS, before, quantized):
            return None
        return quantized


class NncfWeightCompression(Pass):
    """Compresses weights to 8 or 4 bits with NNCF; activations stay in float. Only for models made of MatMul.

    onnxruntime rejects compressed convolutions, so models with Conv are refused.
    """

    tolerance = "lossy"
    requires = ("ir_upgrade", "shape_inference")
    conflicts = WEIGHT_CONFLICTS
    accelerators = ("CPUExecutionProvider",)
    needs_ops = ("MatMul", "Gemm")
    libraries = ("nncf", "onnx", "onnxruntime")
    aliases = ("nncf_weights",)

    mode: Annotated[
        Literal["int8_asym", "int8_sym", "int4_sym", "int4_asym"],
        Categorical("int8_asym", "int8_sym", "int4_sym", "int4_asym"),
        "number of bits, and symmetric or asymmetric ranges",
    ] = "int8_asym"
    ratio: Annotated[
        float,
        Conditional(
            "mode", {"int4_sym": Categorical(0.6, 0.8, 1.0), "int4_asym": Categorical(0.6, 0.8, 1.0)}, default=IGNORED
        ),
        "share of the weights in 4 bits, with the rest in 8; only int4",
    ] = 1.0
    group_size: Annotated[
        int,
        Conditional(
            "mode", {"int4_sym": Categorical(32, 64, 128), "int4_asym": Categorical(32, 64, 128)}, default=IGNORED
        ),
        "weights that share a scale; only int4",
    ] = 64

    def run(self, model: ModelProto) -> ModelProto | None:
        nncf = import_nncf()

        before = op_counts(model)
        if before["Conv"] or before["ConvTranspose"]:
            raise Refused("onnxruntime rejects convolutions compressed by NNCF")
        options: dict[str, object] = {}
        if self.mode.startswith("int4"):
            options = {"ratio": self.ratio, "group_size": self.group_size}
        prepared = at_least_opset(model, 21)
        try:
            with quiet():
                mode = nncf.CompressWeightsMode(self.mode)
                compressed: ModelProto = nncf.compress_weights(prepared, mode=mode, **options)
        except MemoryError:
            raise
        except Exception as error:  # NNCF passes on any exception of its steps
            raise Refused(f"NNCF cannot compress this model: {one_line(str(error))}") from error
        if not has_more_of(("DequantizeLinear", "MatMulNBits"), before, compressed):
            return None
        return compressed
