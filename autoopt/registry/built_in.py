"""The list of built-in passes. A new one adds one line here; nothing else needs an edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BUILT_IN: Final[Mapping[str, str]] = {
    # convert
    "opset_conversion": "autoopt.passes.convert:OpsetConversion",
    "ir_upgrade": "autoopt.passes.convert:IrUpgrade",
    "inline_functions": "autoopt.passes.convert:InlineFunctions",
    "expand_functions": "autoopt.passes.convert:ExpandFunctions",
    "int64_inputs_to_int32": "autoopt.passes.convert:Int64InputsToInt32",
    "remove_input_cast": "autoopt.passes.convert:RemoveInputCast",
    "torch_export": "autoopt.passes.torch_export:TorchExport",
    # composed
    "sequence": "autoopt.passes.compose:SequencePass",
    # cleanup
    "name_fix": "autoopt.passes.cleanup:NameFix",
    "remove_unused": "autoopt.passes.cleanup:RemoveUnused",
    "identity_elimination": "autoopt.passes.cleanup:IdentityElimination",
    "deduplicate_initializers": "autoopt.passes.cleanup:DeduplicateInitializers",
    "lift_constants": "autoopt.passes.cleanup:LiftConstants",
    "lift_subgraph_initializers": "autoopt.passes.cleanup:LiftSubgraphInitializers",
    "inputs_clean": "autoopt.passes.cleanup:InputsClean",
    "common_subexpression_elimination": "autoopt.passes.cleanup:CommonSubexpressionElimination",
    "constant_folding": "autoopt.passes.cleanup:ConstantFolding",
    "simplify": "autoopt.passes.simplify:Simplify",
    "onnxslim": "autoopt.passes.simplify:OnnxSlim",
    "onnxsim": "autoopt.passes.simplify:OnnxSim",
    "onnxscript_optimize": "autoopt.passes.simplify:OnnxScriptOptimize",
    "onnxoptimizer": "autoopt.passes.simplify:OnnxOptimizer",
    "rewrite_rules": "autoopt.passes.simplify:RewriteRules",
    # shape
    "shape_inference": "autoopt.passes.shape:ShapeInference",
    "symbolic_shape_inference": "autoopt.passes.shape:SymbolicShapeInference",
    "fix_input_shape": "autoopt.passes.shape:FixInputShape",
    "fix_dim_param": "autoopt.passes.shape:FixDimParam",
    "materialize_reshape": "autoopt.passes.shape:MaterializeReshape",
    # fusion
    "batchnorm_folding": "autoopt.passes.fusion:BatchNormFolding",
    "conv_affine_folding": "autoopt.passes.fusion:ConvAffineFolding",
    "pad_folding": "autoopt.passes.fusion:PadFolding",
    "matmul_add_gemm": "autoopt.passes.fusion:MatMulAddGemm",
    "transformer_fusion": "autoopt.passes.fusion:TransformerFusion",
    "gelu_approximation": "autoopt.passes.fusion:GeluApproximation",
    "packing_mode": "autoopt.passes.fusion:PackingMode",
    "local_rewrites": "autoopt.passes.fusion:LocalRewrites",
    "ort_graph_optimization": "autoopt.passes.offline:OrtGraphOptimization",
    # precision, quantize, structure, check, runtime
    "float16": "autoopt.passes.precision:Float16",
    "mixed_float16": "autoopt.passes.mixed:MixedFloat16",
    "bfloat16": "autoopt.passes.mixed:BFloat16",
    "quant_pre_process": "autoopt.passes.quantize.prepare:QuantPreProcess",
    "dynamic_quantization": "autoopt.passes.quantize.dynamic:DynamicQuantization",
    "static_quantization": "autoopt.passes.quantize.static:StaticQuantization",
    "static_16bit": "autoopt.passes.quantize.wide:Static16Bit",
    "static_w4": "autoopt.passes.quantize.wide:StaticW4",
    "fp8_quantization": "autoopt.passes.quantize.wide:Fp8Quantization",
    "weight_only_quantization": "autoopt.passes.quantize.weights:WeightOnlyQuantization",
    "bnb4_quantization": "autoopt.passes.quantize.bnb4:Bnb4Quantization",
    "nncf_quantization": "autoopt.passes.quantize.neural:NncfQuantization",
    "nncf_weight_compression": "autoopt.passes.quantize.neural:NncfWeightCompression",
    "selective_quantization": "autoopt.passes.quantize.sensitivity:SelectiveQuantization",
    "split_stages": "autoopt.passes.structure.stages:SplitStages",
    "merge": "autoopt.passes.structure.stages:Merge",
    "add_checkpoints": "autoopt.passes.structure.stages:AddCheckpoints",
    "prepend_preprocessing": "autoopt.passes.structure.dress:PrependPreprocessing",
    "append_postprocessing": "autoopt.passes.structure.dress:AppendPostprocessing",
    "external_data": "autoopt.passes.structure.storage:ExternalData",
    "ort_format": "autoopt.passes.structure.storage:OrtFormat",
    "checker": "autoopt.passes.check.valid:Checker",
    "equivalence": "autoopt.passes.check.valid:EquivalenceCheck",
    "operator_counts": "autoopt.passes.check.overview:OperatorCounts",
    "model_overview": "autoopt.passes.check.overview:ModelOverview",
    "profile": "autoopt.passes.check.overview:Profile",
    "layer_precision_compare": "autoopt.passes.check.overview:LayerPrecisionCompare",
    "layer_sensitivity": "autoopt.passes.quantize.sensitivity:LayerSensitivity",
    "session_tuning": "autoopt.passes.runtime:SessionTuning",
}
"""Name -> `module:attribute` of the class or function."""
