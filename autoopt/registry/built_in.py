"""The list of built-in passes. A new one adds one line here; nothing else needs an edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
    "lift_constants": "autoopt.passes.cleanup.graph_cleanup:LiftConstants",
    "lift_subgraph_initializers": "autoopt.passes.cleanup.graph_cleanup:LiftSubgraphInitializers",
    "inputs_clean": "autoopt.passes.cleanup.graph_cleanup:InputsClean",
    "common_subexpression_elimination": "autoopt.passes.cleanup.graph_cleanup:CommonSubexpressionElimination",
    "constant_folding": "autoopt.passes.cleanup.graph_cleanup:ConstantFolding",
    "simplify": "autoopt.passes.cleanup.simplifiers:Simplify",
    "onnxslim": "autoopt.passes.cleanup.simplifiers:OnnxSlim",
    "onnxsim": "autoopt.passes.cleanup.simplifiers:OnnxSim",
    "onnxscript_optimize": "autoopt.passes.cleanup.simplifiers:OnnxScriptOptimize",
    "onnxoptimizer": "autoopt.passes.cleanup.simplifiers:OnnxOptimizer",
    "rewrite_rules": "autoopt.passes.cleanup.simplifiers:RewriteRules",
    # shape
    "shape_inference": "autoopt.passes.shape.inference:ShapeInference",
    "symbolic_shape_inference": "autoopt.passes.shape.inference:SymbolicShapeInference",
    "fix_input_shape": "autoopt.passes.shape.fixed_shapes:FixInputShape",
    "fix_dim_param": "autoopt.passes.shape.fixed_shapes:FixDimParam",
    "materialize_reshape": "autoopt.passes.shape.inference:MaterializeReshape",
    # fusion
    "batchnorm_folding": "autoopt.passes.fusion.weight_folding:BatchNormFolding",
    "conv_affine_folding": "autoopt.passes.fusion.weight_folding:ConvAffineFolding",
    "pad_folding": "autoopt.passes.fusion.weight_folding:PadFolding",
    "matmul_add_gemm": "autoopt.passes.fusion.weight_folding:MatMulAddGemm",
    "transformer_fusion": "autoopt.passes.fusion.transformer:TransformerFusion",
    "gelu_approximation": "autoopt.passes.fusion.transformer:GeluApproximation",
    "packing_mode": "autoopt.passes.fusion.transformer:PackingMode",
    "local_rewrites": "autoopt.passes.rewrites.local_rewrites:LocalRewrites",
    "ort_graph_optimization": "autoopt.passes.fusion.ort_graph:OrtGraphOptimization",
    # precision, quantize, structure, check, runtime
    "float16": "autoopt.passes.precision.half_floats:Float16",
    "mixed_float16": "autoopt.passes.precision.mixed_float16:MixedFloat16",
    "bfloat16": "autoopt.passes.precision.half_floats:BFloat16",
    "quant_pre_process": "autoopt.passes.quantize.pre_process:QuantPreProcess",
    "dynamic_quantization": "autoopt.passes.quantize.dynamic:DynamicQuantization",
    "static_quantization": "autoopt.passes.quantize.static:StaticQuantization",
    "static_16bit": "autoopt.passes.quantize.static_types:Static16Bit",
    "static_w4": "autoopt.passes.quantize.static_types:StaticW4",
    "fp8_quantization": "autoopt.passes.quantize.static_types:Fp8Quantization",
    "weight_only_quantization": "autoopt.passes.quantize.weight_only:WeightOnlyQuantization",
    "bnb4_quantization": "autoopt.passes.quantize.bnb4:Bnb4Quantization",
    "nncf_quantization": "autoopt.passes.quantize.nncf:NncfQuantization",
    "nncf_weight_compression": "autoopt.passes.quantize.nncf:NncfWeightCompression",
    "selective_quantization": "autoopt.passes.quantize.sensitivity:SelectiveQuantization",
    "split_stages": "autoopt.passes.structure.stages:SplitStages",
    "merge": "autoopt.passes.structure.merge:Merge",
    "add_checkpoints": "autoopt.passes.structure.stages:AddCheckpoints",
    "prepend_preprocessing": "autoopt.passes.structure.pre_post_processing:PrependPreprocessing",
    "append_postprocessing": "autoopt.passes.structure.pre_post_processing:AppendPostprocessing",
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
}
"""Name -> `module:attribute` of the class or function."""
