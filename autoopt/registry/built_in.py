"""The list of built-in passes. A new one adds one line here; nothing else needs an edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from autoopt.json_codec import JsonObject

BUILT_IN: Final[Mapping[str, str]] = {
    # convert
    "opset_conversion": "autoopt.passes.convert.conversions:OpsetConversion",
    "ir_upgrade": "autoopt.passes.convert.conversions:IrUpgrade",
    "inline_functions": "autoopt.passes.convert.conversions:InlineFunctions",
    "expand_functions": "autoopt.passes.convert.conversions:ExpandFunctions",
    "int64_inputs_to_int32": "autoopt.passes.convert.conversions:Int64InputsToInt32",
    "remove_input_cast": "autoopt.passes.convert.conversions:RemoveInputCast",
    "torch_export": "autoopt.passes.convert.torch_export:TorchExport",
    # composed
    "sequence": "autoopt.passes.composed.sequence:SequencePass",
    # cleanup
    "name_fix": "autoopt.passes.cleanup.graph_cleanup:NameFix",
    "remove_unused": "autoopt.passes.cleanup.graph_cleanup:RemoveUnused",
    "identity_elimination": "autoopt.passes.cleanup.graph_cleanup:IdentityElimination",
    "deduplicate_initializers": "autoopt.passes.cleanup.graph_cleanup:DeduplicateInitializers",
    "tie_weights": "autoopt.passes.cleanup.graph_cleanup:TieWeights",
    "lift_constants": "autoopt.passes.cleanup.graph_cleanup:LiftConstants",
    "lift_subgraph_initializers": "autoopt.passes.cleanup.graph_cleanup:LiftSubgraphInitializers",
    "inputs_clean": "autoopt.passes.cleanup.graph_cleanup:InputsClean",
    "common_subexpression_elimination": "autoopt.passes.cleanup.graph_cleanup:CommonSubexpressionElimination",
    "constant_folding": "autoopt.passes.cleanup.graph_cleanup:ConstantFolding",
    "loop_invariant_code_motion": "autoopt.passes.cleanup.loop_invariants:LoopInvariantCodeMotion",
    "loop_to_rnn": "autoopt.passes.cleanup.loop_to_rnn:LoopToRnn",
    "omit_zero_states": "autoopt.passes.cleanup.recurrent:OmitZeroStates",
    "simplify": "autoopt.passes.cleanup.simplifiers:Simplify",
    "onnxoptimizer": "autoopt.passes.cleanup.simplifiers:OnnxOptimizer",
    "rewrite_rules": "autoopt.passes.cleanup.simplifiers:RewriteRules",
    "merge_reshapes": "autoopt.passes.cleanup.views:MergeReshapes",
    # shape
    "shape_inference": "autoopt.passes.shape.inference:ShapeInference",
    "symbolic_shape_inference": "autoopt.passes.shape.inference:SymbolicShapeInference",
    "fix_input_shape": "autoopt.passes.shape.fixed_shapes:FixInputShape",
    "specialize_inputs": "autoopt.passes.shape.specialize:SpecializeInputs",
    "fix_dim_param": "autoopt.passes.shape.fixed_shapes:FixDimParam",
    "materialize_reshape": "autoopt.passes.shape.inference:MaterializeReshape",
    # fusion
    "batchnorm_folding": "autoopt.passes.fusion.weight_folding:BatchNormFolding",
    "conv_affine_folding": "autoopt.passes.fusion.weight_folding:ConvAffineFolding",
    "hard_sigmoid_fusion": "autoopt.passes.fusion.operator_forms:HardSigmoidFusion",
    "pad_folding": "autoopt.passes.fusion.weight_folding:PadFolding",
    "conv_transpose_to_conv": "autoopt.passes.fusion.operator_forms:ConvTransposeToConv",
    "conv_to_rows": "autoopt.passes.fusion.conv_rows:ConvToRows",
    "split_skip_normalization": "autoopt.passes.fusion.residual:SplitSkipNormalization",
    "split_fused_layers": "autoopt.passes.fusion.operator_forms:SplitFusedLayers",
    "stft_to_conv": "autoopt.passes.fusion.operator_forms:StftToConv",
    "matmul_add_gemm": "autoopt.passes.fusion.weight_folding:MatMulAddGemm",
    "transformer_fusion": "autoopt.passes.fusion.transformer:TransformerFusion",
    "gelu_approximation": "autoopt.passes.fusion.transformer:GeluApproximation",
    "packing_mode": "autoopt.passes.fusion.transformer:PackingMode",
    "local_rewrites": "autoopt.passes.rewrites.local_rewrites:LocalRewrites",
    "ort_graph_optimization": "autoopt.passes.fusion.ort_graph:OrtGraphOptimization",
    # precision, quantize, structure, check, runtime
    "float16": "autoopt.passes.precision.half_floats:Float16",
    "float32": "autoopt.passes.precision.full_floats:Float32",
    "float64_to_float32": "autoopt.passes.precision.full_floats:Float64ToFloat32",
    "mixed_float16": "autoopt.passes.precision.mixed_float16:MixedFloat16",
    "bfloat16": "autoopt.passes.precision.half_floats:BFloat16",
    "quant_pre_process": "autoopt.passes.quantize.pre_process:QuantPreProcess",
    "cross_layer_equalization": "autoopt.passes.quantize.equalize:CrossLayerEqualization",
    "smooth_quant": "autoopt.passes.quantize.smooth:SmoothQuant",
    "dynamic_quantization": "autoopt.passes.quantize.dynamic:DynamicQuantization",
    "static_quantization": "autoopt.passes.quantize.static:StaticQuantization",
    "calibrated_weight_quantization": "autoopt.passes.quantize.calibrated_weights:CalibratedWeightQuantization",
    "weight_only_quantization": "autoopt.passes.quantize.weight_only:WeightOnlyQuantization",
    "matmul_nbits_to_qdq": "autoopt.passes.quantize.block_format:MatMulNBitsToQdq",
    "bnb4_quantization": "autoopt.passes.quantize.bnb4:Bnb4Quantization",
    "nncf_quantization": "autoopt.passes.quantize.nncf:NncfQuantization",
    "nncf_weight_compression": "autoopt.passes.quantize.nncf:NncfWeightCompression",
    "selective_quantization": "autoopt.passes.quantize.sensitivity:SelectiveQuantization",
    "dequantize": "autoopt.passes.quantize.dequantize:Dequantize",
    "unsigned_activations": "autoopt.passes.quantize.unsigned_activations:UnsignedActivations",
    "split_stages": "autoopt.passes.structure.stages:SplitStages",
    "merge": "autoopt.passes.structure.merge:Merge",
    "add_checkpoints": "autoopt.passes.structure.stages:AddCheckpoints",
    "prepend_preprocessing": "autoopt.passes.structure.pre_post_processing:PrependPreprocessing",
    "append_postprocessing": "autoopt.passes.structure.pre_post_processing:AppendPostprocessing",
    "rename_inputs_outputs": "autoopt.passes.structure.signature:RenameInputsOutputs",
    "remove_outputs": "autoopt.passes.structure.signature:RemoveOutputs",
    "convert_input_output_types": "autoopt.passes.structure.signature:ConvertInputOutputTypes",
    "extract_adapters": "autoopt.passes.structure.adapters:ExtractAdapters",
    "external_data": "autoopt.passes.structure.storage:ExternalData",
    "ort_format": "autoopt.passes.structure.storage:OrtFormat",
    "checker": "autoopt.passes.check.validity:Checker",
    "equivalence": "autoopt.passes.check.validity:EquivalenceCheck",
    "operator_counts": "autoopt.passes.check.reports:OperatorCounts",
    "model_overview": "autoopt.passes.check.reports:ModelOverview",
    "profile": "autoopt.passes.check.reports:Profile",
    "layer_precision_compare": "autoopt.passes.check.layer_precision:LayerPrecisionCompare",
    "layer_sensitivity": "autoopt.passes.quantize.sensitivity:LayerSensitivity",
    "session_tuning": "autoopt.passes.runtime.session_tuning:SessionTuning",
    "provider_precision": "autoopt.passes.runtime.provider_precision:ProviderPrecision",
}
"""Name -> `module:attribute` of the class or function."""
_Meaning: TypeAlias = tuple[str, JsonObject]
_ONNXSCRIPT: Final[_Meaning] = ("simplify", {"engine": "onnxscript", "fuse": False})
_WIDE: Final[_Meaning] = (
    "static_quantization",
    {"activation_type": "QUInt16", "weight_type": "QInt8", "quant_format": "QDQ"},
)
_NARROW: Final[_Meaning] = ("static_quantization", {"weight_type": "QInt4"})
_FLOAT8: Final[_Meaning] = ("static_quantization", {"weight_type": "QFLOAT8E4M3FN"})
PRESETS: Final[Mapping[str, _Meaning]] = {
    "onnxslim": ("simplify", {"engine": "onnxslim"}),
    "onnxsim": ("simplify", {"engine": "onnxsim"}),
    **dict.fromkeys(("onnxscript_optimize", "os_optimize"), _ONNXSCRIPT),
    **dict.fromkeys(("static_16bit", "static_int16"), _WIDE),
    **dict.fromkeys(("static_w4", "static_int4"), _NARROW),
    **dict.fromkeys(("fp8_quantization", "fp8_qdq"), _FLOAT8),
}
"""Name of a pass with parameters -> the pass, and the parameters."""
