"""The autoopt equivalents of PopRT and Olive passes: the answers of `autoopt passes compat`.

A line of a table is `name | pass (or passes) | parameters as JSON, where NAME is the name | remark`. Parameters after
`e.g.` are an example of values that the user gives; others are presets of the name in dag.yaml. `-` in place of a pass
means that nothing portable does the same; the remark gives the reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonValue, to_json


@dataclass(frozen=True)
class Answer:
    """The equivalent of pass `name` of `product`: `passes` with `params`, or none and a `remark` with the reason.

    A name with one pass is an alias of it in dag.yaml. It stands for that pass with `presets`: the `params`, unless
    they are only an `example` of values that the user has to give.
    """

    name: str
    product: str
    passes: tuple[str, ...]
    params: dict[str, JsonValue]
    remark: str
    example: bool = False

    @property
    def presets(self) -> dict[str, JsonValue]:
        """The parameters that the name implies."""
        if self.example:
            return {}
        return dict(self.params)

    @property
    def hint(self) -> str:
        """The remedy for a user who wrote a name that is not an alias."""
        return f"autoopt's equivalent of this {self.product} pass: {self.text}"

    @property
    def text(self) -> str:
        """The answer in one line."""
        if not self.passes:
            return f"nothing portable: {self.remark}"
        text = " or ".join(self.passes)
        if self.params:
            values = ", ".join(f"{name}: {json.dumps(value)}" for name, value in self.params.items())
            if self.example:
                text += f" with, for example, {values}"
            else:
                text += f" with {values}"
        if self.remark:
            text += f" ({self.remark})"
        return text

    def to_json(self) -> dict[str, JsonValue]:
        """The answer as JSON, with its one-line form as `text`."""
        return {**to_json(self), "text": self.text}


@lru_cache(maxsize=1)
def answers() -> dict[str, Answer]:
    """All answers by name: first PopRT's, then Olive's, then those to the kinds of its GraphSurgeries."""
    answers: dict[str, Answer] = {}
    for product, table in (("PopRT", POPRT), ("Olive", OLIVE), ("Olive surgery", SURGERIES)):
        for line in table.strip().splitlines():
            entry = _parse(line, product)
            answers[entry.name] = entry
    return answers


def answer(name: str) -> Answer:
    """The equivalent of the pass `name`; upper and lower case are the same.

    Raises:
        InputError: neither PopRT nor Olive has a pass of that name; suggests the nearest.
    """
    for candidate in answers().values():
        if candidate.name.lower() == name.lower():
            return candidate
    hint = did_you_mean(name, answers())
    raise InputError(f"PopRT and Olive have no pass {name!r}", remedy=hint or "'autoopt passes compat' shows all")


def _parse(line: str, product: str) -> Answer:
    """Read one line of a table."""
    name, passes, params, remark = (f"{line} ".split(" | ") + [""])[:4]
    names: tuple[str, ...] = ()
    if passes.strip() != "-":
        names = tuple(map(str.strip, passes.split(" or ")))
    params = params.strip().replace("NAME", name)
    values = json.loads(params.removeprefix("e.g.") or "{}")
    return Answer(name, product, names, values, remark.strip(), example=params.startswith("e.g."))


POPRT: Final = r"""
add_checkpoints | add_checkpoints |  | `checkpoints` is called `values` here
apply_ir_pass | sequence | e.g. {"passes": ["name_fix", "simplify"]} | neighbours run in one load and save anyway
auto_insert_remap | ort_graph_optimization | {"level": "all"} | the nearest: CPU layout; PopRT's is for IPU tiles
batchnorm_workaround | - |  | works around a limit of PopART; batchnorm_folding removes the operator
check_with_fake_data | equivalence |  | every pass is checked on synthetic feeds anyway
const_batch_size | fix_dim_param | {"value": 1} |
const_input_shape | fix_input_shape | e.g. {"shapes": {"input": [1, 3, 224, 224]}} |
constant_folding | constant_folding |  | `max_tensor_size` is `output_size_limit` here
cumsum_workaround | local_rewrites | {"rules": ["NAME"]} |
eight_bits_io | prepend_preprocessing |  |
eliminate_deadend | remove_unused |  |
eliminate_duplicate_initializer | deduplicate_initializers |  |
eliminate_identity | identity_elimination |  |
eliminate_nop_arithmetic | simplify |  | only onnxslim and onnxsim remove all four operations
eliminate_nop_cast | rewrite_rules |  |
eliminate_nop_expand | simplify |  |
eliminate_nop_flatten | simplify |  |
eliminate_nop_if | constant_folding |  |
eliminate_nop_pad | simplify |  |
eliminate_nop_reshape | simplify |  |
eliminate_nop_transpose | rewrite_rules |  |
eliminate_unused_initializer | remove_unused |  |
erf_gelu_pattern | transformer_fusion |  |
extract_constant_to_initializer | lift_constants |  |
final_check | checker |  | every pass is checked anyway
float_ops_workaround | float16 | {"op_block_list": ["ReduceMean"]} | such types of operators stay in float32
float_to_fp8 | static_quantization | {"weight_type": "QFLOAT8E4M3FN"} | scales from calibration data
float_to_half | float16 |  | `skip_op_types` is `op_block_list` here
float_to_mixed | mixed_float16 |  |
fuse_bn_into_conv | batchnorm_folding |  |
fuse_bn_into_gemm | batchnorm_folding |  | Gemm; ort_graph_optimization does MatMul too
fuse_cast_into_onehot | local_rewrites | {"rules": ["NAME"]} |
fuse_consecutive_cast | ort_graph_optimization | {"level": "basic"} | never across a lossy cast
fuse_consecutive_reshape | simplify |  |
fuse_consecutive_squeeze | onnxoptimizer | {"passes": ["fuse_consecutive_squeezes"]} |
fuse_consecutive_transpose | rewrite_rules |  |
fuse_consecutive_unsqueeze | simplify |  |
fused_attention | transformer_fusion |  |
gelu_pattern | transformer_fusion |  | the tanh form is fused by ort_graph_optimization at level extended
indices_workaround | local_rewrites | {"rules": ["NAME"]} |
insert_attention_mask | transformer_fusion |  | the mask becomes an input of the fused attention
int64_to_int32 | int64_inputs_to_int32 |  | inputs only: inside a graph ONNX needs int64 for shapes and indices
layer_norm_pattern | ort_graph_optimization | {"level": "basic"} | into LayerNormalization, not the IPU's GroupNorm
layer_precision_compare | layer_precision_compare | e.g. {"origin": "float.onnx"} | signal to noise in dB, not cosine
manual_sharding | split_stages | e.g. {"cuts": [["value"]], "stage": 0} | pipelining is for the IPU
matmul_rotary_embedding | local_rewrites | {"rules": ["NAME"]} |
model_overview | model_overview |  |
move_subgraph_initializer | lift_subgraph_initializers |  |
overlap_io | - |  | IPU scheduling; with CUDA session_tuning searches io_binding, enable_cuda_graph
packed_transformer | packing_mode |  | packed attention, CUDA only
post_expand | - |  | not described by PopRT; ONNX operators broadcast without Expand
pre_scale | local_rewrites | {"rules": ["NAME"]} |
remove_duplicated_initializer | deduplicate_initializers |  |
remove_initializer_from_input | inputs_clean |  |
remove_input_cast | remove_input_cast |  | changes the type of the inputs
replace_bn_with_mul_add | local_rewrites | {"rules": ["NAME"]} |
replace_celu | expand_functions | {"ops": ["Celu"]} |
replace_clip_empty_inputs | local_rewrites | {"rules": ["NAME"]} |
replace_consecutive_cast_with_notzero | local_rewrites | {"rules": ["NAME"]} | as Not(Equal(x, 0))
replace_div_with_mul | local_rewrites | {"rules": ["NAME"]} |
replace_einsum_with_matmul | simplify | {"engine": "onnxsim", "extra_optimizers": ["NAME"]} |
replace_erf_with_erfv2 | gelu_approximation |  | ErfV2 is an IPU operator; the approximate Gelu is the portable trade
replace_greater_or_equal | expand_functions | {"ops": ["GreaterOrEqual"]} | the rule in local_rewrites differs on NaN
replace_groupnorm_with_fast_norm | - |  | an IPU operator; transformer_fusion makes the runtime's GroupNorm on GPUs
replace_half_reducemean | local_rewrites | {"rules": ["NAME"]} | or float16 with it in op_block_list
replace_hardswish | expand_functions | {"ops": ["HardSwish"]} |
replace_less_or_equal | expand_functions | {"ops": ["LessOrEqual"]} | the rule in local_rewrites differs on NaN
replace_nonzero | local_rewrites | {"rules": ["NAME"], "assume": ["one_nonzero"]} | where exactly one value is not zero
replace_pow | local_rewrites | {"rules": ["NAME"]} |
replace_softmax | - |  | SoftmaxV2 is an IPU operator for odd sizes; other runtimes need no replacement
replace_trilu | local_rewrites | {"rules": ["NAME"]} | a constant one folds away in constant_folding
replace_where_mask | local_rewrites | {"rules": ["NAME"]} |
replace_where_with_mul_add | local_rewrites | {"rules": ["NAME"], "assume": ["finite"]} | where no value is infinite
replace_where_with_wherev2 | - |  | WhereV2 is an IPU operator
serialize_matmul | local_rewrites | {"rules": ["NAME"]} | lowers peak memory, saves no time
serialize_matmul_add | local_rewrites | {"rules": ["NAME"]} | lowers peak memory, saves no time
shape_inference | shape_inference |  |
topk_workaround | local_rewrites | {"rules": ["NAME"]} |
trace_folding | materialize_reshape |  | read as folding of shape computations; simplify does more of it
unique_name_for_nodes | name_fix |  |
"""

OLIVE: Final = r"""
OnnxConversion | torch_export |  | `use_dynamo_exporter` is `exporter` here
OnnxOpVersionConversion | opset_conversion |  |
OrtTransformersOptimization | transformer_fusion | {"engine": "onnxruntime"} | the default engine fuses more attention
OnnxDynamicQuantization | dynamic_quantization |  | `quant_preprocess` is the pass quant_pre_process
OnnxStaticQuantization | static_quantization |  |
OnnxQuantization | dynamic_quantization or static_quantization |  | two nodes of one stage instead of `quant_mode`
IncStaticQuantization | static_quantization |  | neural-compressor left ONNX Runtime; nncf_quantization is its peer
IncDynamicQuantization | dynamic_quantization |  | neural-compressor left ONNX Runtime
IncQuantization | weight_only_quantization |  | neural-compressor left ONNX Runtime; see static_quantization
OnnxMatMul4Quantizer | weight_only_quantization |  |
OnnxBlockWiseRtnQuantization | weight_only_quantization |  |
OnnxKQuantQuantization | weight_only_quantization | {"algorithm": "k_quant"} |
OnnxHqqQuantization | weight_only_quantization | {"algorithm": "hqq"} |
OnnxBnb4Quantization | bnb4_quantization |  |
OnnxFloatToFloat16 | float16 |  |
OrtMixedPrecision | mixed_float16 |  |
MixedPrecisionOverrides | selective_quantization |  | leaves sensitive layers in float32
OnnxPeepholeOptimizer | simplify | {"engine": "onnxscript"} | or onnxoptimizer, constant_folding, remove_unused
OnnxScriptFusion | transformer_fusion |  |
DynamicToFixedShape | fix_input_shape or fix_dim_param |  |
GraphSurgeries | local_rewrites | e.g. {"rules": ["replace_pow"]} | also dequantize, remove_outputs, ...
OnnxIODataTypeConverter | convert_input_output_types | e.g. {"types": {"scores": "float16"}} |
OnnxIOFloat16ToFloat32 | float16 | {"keep_io_types": true} |
AppendPrePostProcessingOps | prepend_preprocessing or append_postprocessing | e.g. {} |
SplitModel | split_stages |  |
ComposeOnnxModels | merge |  |
OnnxDiscrepancyCheck | equivalence | e.g. {"origin": "source.onnx"} | every candidate is compared with the source anyway
OrtSessionParamsTuning | session_tuning |  |
OrtPerfTuning | session_tuning |  |
MatMulNBitsToQDQ | matmul_nbits_to_qdq |  | `use_int4` is `signed` here
InsertBeamSearch | - |  | generation loops of language models are not portable as a graph pass
ModelBuilder | - |  | builds language models for onnxruntime-genai from their weights
ExtractAdapters | extract_adapters |  | of adapters in float
OptimumConversion | torch_export |  | from a user script
OptimumMerging | - |  | merges decoder variants of language models for Optimum's own runtime
NchwToNhwc | - |  | ONNX convolutions are channels first; prepend_preprocessing takes NHWC images
OpenVINOQuantization | nncf_quantization |  | the same library, on ONNX models
OpenVINOConversion | - |  | another runtime's format; ONNX Runtime's OpenVINO provider takes ONNX
VitisAIQuantization | - |  | needs the vendor's quantizer; static_quantization makes portable QDQ
QNNPreprocess | quant_pre_process |  | and activation_type QUInt16 of static_quantization for 16-bit activations
LoRA | - |  | fine-tuning of PyTorch models is training, not a graph pass
QLoRA | - |  | fine-tuning of PyTorch models is training, not a graph pass
GptqQuantizer | calibrated_weight_quantization | {"algorithm": "gptq"} | on the ONNX model instead of the PyTorch one
AutoAWQQuantizer | calibrated_weight_quantization | {"algorithm": "awq"} | on the ONNX model instead of the PyTorch one
SparseGPT | - |  | prunes PyTorch weights; ONNX Runtime gains nothing from sparse weights
QuantizationAwareTraining | - |  | is training; export the trained model with torch_export
AddOliveMetadata | - |  | Olive's own metadata; `autoopt lineage` shows how a model was made
AimetQuantization | static_quantization |  | without AIMET, which is for Qualcomm NPUs; the format is QDQ too
AutoClip | - |  | works on PyTorch weights; weight_only_quantization with hqq optimizes ranges on the ONNX model
CaptureLayerAnnotations | - |  | prepares Olive's own export of PyTorch models
CaptureSplitInfo | split_stages |  | chooses the cuts on the ONNX graph
DoRA | - |  | fine-tuning of PyTorch models is training, not a graph pass
EPContextBinaryGenerator | - |  | compiles for one provider; onnxruntime does it with `ep.context_enable` of a session
Gptq | calibrated_weight_quantization | {"algorithm": "gptq"} | on the ONNX model instead of the PyTorch one
GptqModel | calibrated_weight_quantization | {"algorithm": "gptq"} | on the ONNX model instead of the PyTorch one
InputNCHWtoNHWC | prepend_preprocessing | {"image_layout": "NHWC"} | takes 8-bit images and scales them
KQuant | weight_only_quantization | {"algorithm": "k_quant"} | on the ONNX model instead of the PyTorch one
LoHa | - |  | fine-tuning of PyTorch models is training, not a graph pass
LoKr | - |  | fine-tuning of PyTorch models is training, not a graph pass
LoftQ | - |  | fine-tuning of PyTorch models is training, not a graph pass
MergeAdapterWeights | - |  | merge adapters in PyTorch before torch_export
MobiusBuilder | - |  | builds language models from their weights; torch_export takes a PyTorch model
NVModelOptGraphSurgery | - |  | prepares for NVIDIA's quantizer; see simplify and transformer_fusion
NVModelOptQuantization | static_quantization or calibrated_weight_quantization |  | in ONNX Runtime's formats
OnnxQuantizationPreprocess | quant_pre_process |  |
OpenVINOEncapsulation | - |  | another runtime's format; ONNX Runtime's OpenVINO provider takes ONNX
OpenVINOIoUpdate | - |  | changes inputs and outputs of another runtime's format
OpenVINOOptimumConversion | - |  | another runtime's format; ONNX Runtime's OpenVINO provider takes ONNX
OpenVINOQuantizationWithAccuracy | nncf_quantization |  | the limit of the accuracy is a constraint of the run
OpenVINOWeightCompression | nncf_weight_compression |  | the same library, on ONNX models
QNNContextBinaryGenerator | - |  | Qualcomm's format; onnxruntime makes it with `ep.context_enable` of a session
QNNConversion | - |  | Qualcomm's format; ONNX Runtime's QNN provider takes ONNX
QNNModelLibGenerator | - |  | Qualcomm's format; ONNX Runtime's QNN provider takes ONNX
QairtEncapsulation | - |  | Qualcomm's own format; ONNX Runtime's QNN provider takes ONNX
QairtGenAIBuilder | - |  | builds language models for Qualcomm's own runtime
QairtMHA2SHA | - |  | splits attention into single heads for Qualcomm NPUs
QairtPipelinePass | - |  | Qualcomm's own tool chain
QairtPreparation | - |  | Qualcomm's own tool chain
QuaRot | - |  | rotates PyTorch weights before quantization; rotate before torch_export
QuarkQuantization | static_quantization |  | without AMD's quantizer; the format is QDQ too
Rtn | weight_only_quantization | {"algorithm": "rtn"} | on the ONNX model instead of the PyTorch one
SDLoRA | - |  | fine-tuning of PyTorch models is training, not a graph pass
SelectiveMixedPrecision | calibrated_weight_quantization | {"sensitive_share": 0.25} | `k_quant_last` is `head_bits`: 8
SliceGPT | - |  | prunes PyTorch weights; export the pruned model with torch_export
SpinQuant | - |  | rotates PyTorch weights before quantization; rotate before torch_export
StaticLLM | fix_dim_param or fix_input_shape |  | fixed shapes only; the split into prompt and generation is for NPUs
VitisAIAddMetaData | - |  | metadata that AMD's compiler reads
VitisGenerateModelLLM | - |  | models for AMD's NPU compiler
VitisGenerateModelSD | - |  | models for AMD's NPU compiler
"""

SURGERIES: Final = r"""
RenameInputs | rename_inputs_outputs |  |
RenameOutputs | rename_inputs_outputs |  |
InferShapes | shape_inference |  |
RemoveShapes | - |  | recorded shapes cost nothing; shape_inference records them anew
RemoveInitializerFromInputs | inputs_clean |  |
ReorderInputs | - |  | callers of ONNX Runtime name inputs, so their order does not matter
ReplaceErfWithTanh | gelu_approximation |  | of a fused Gelu
ZeroOutInput | - |  | computes something else; specialize_inputs fixes a value that never changes
RemoveInputs | specialize_inputs |  | with the value that the input has from then on
ExposeOutputs | add_checkpoints |  |
ExposeQuantizedOutput | add_checkpoints |  | the value before the last DequantizeLinear
DecomposeQuickGelu | - |  | for runtimes without the operator; ONNX Runtime has it
DecomposeRotaryEmbedding | - |  | for runtimes without the operator; ONNX Runtime has it
RMSNormToL2Norm | - |  | a form for NPUs
SimplifiedLayerNormToRMSNorm | - |  | for runtimes without the operator; ONNX Runtime has it
SimplifiedLayerNormToL2Norm | - |  | a form for NPUs
PowReduceSumPowDiv2LpNorm | - |  | a form for NPUs
MatMulAddToGemm | matmul_add_gemm | {"direction": "gemm"} |
GemmToMatMulAdd | matmul_add_gemm | {"direction": "matmul_add"} |
RemoveRopeMultiCache | - |  | for models of onnxruntime-genai's builder
AttentionMaskToSequenceLengths | - |  | for models of onnxruntime-genai's builder
ReplaceAttentionMaskValue | - |  | for 16-bit NPUs, whose smallest number is larger
RemoveGidxFromMatMulNBits | - |  | its weights are made without group indices here
RemoveQDQ | dequantize |  |
MatMulToTransposeConvTranspose | - |  | a form for NPUs
RemoveIntermediarySqueezeAndUnsqueeze | merge_reshapes |  |
QDQToClip | dequantize |  |
RemoveDeqLin | dequantize |  |
Non4DModelInputs | - |  | a form for NPUs
Non4DModelOutputs | - |  | a form for NPUs
StandaloneReduceSum | - |  | a form for NPUs
Non4DInitializers | - |  | a form for NPUs
RemoveAllTensorValueShapes | - |  | recorded shapes cost nothing; shape_inference records them anew
Non4DReshape | - |  | a form for NPUs
Non4DExpand | - |  | a form for NPUs
Non4DTranspose | - |  | a form for NPUs
Non4DSlice | - |  | a form for NPUs
Non4DLpNorm | - |  | a form for NPUs
AddIntermediateTensorsToOutputs | add_checkpoints |  |
ReshapeReduceSum | - |  | a form for NPUs
ReshapeClipReduceSum | - |  | a form for NPUs
TieWordEmbeddings | tie_weights |  | quantized ones: embedding_bits of weight_only_quantization
QuantizeEmbeddingInt8 | weight_only_quantization | {"embedding_bits": 8, "bits": 8} | in blocks, in float32 too
ShareEmbeddingLmHead | tie_weights |  | quantized ones: embedding_bits of weight_only_quantization
ReciprocalMulToDiv | - |  | computes the same in the same time on CPUs and GPUs
DeduplicateSubgraphInitializers | lift_subgraph_initializers |  |
DeduplicateNodes | common_subexpression_elimination |  |
PackedAttentionToLoopMHA | - |  | for an operator of Olive's own exports
PackedAttentionToPackedMHA | - |  | for an operator of Olive's own exports
RenameOutputDims | - |  | names of dimensions do not change a model
RemoveMemcpy | - |  | copies between devices are ONNX Runtime's own, made anew for each session
RenameInputDims | - |  | names of dimensions do not change a model
Gather | - |  | a form for NPUs
GatherElements | - |  | a form for NPUs
Flatten | - |  | a form for NPUs
ReduceMax | - |  | a form for NPUs
"""
"""Kinds of the pass GraphSurgeries of Olive 0.13.0."""
