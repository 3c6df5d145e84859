"""Answers for other products' names: complete, and true of the passes there are."""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

import pytest

from autoopt.dag import compile_plan, pass_infos
from autoopt.errors import InputError
from autoopt.passes.base.config import full_config
from autoopt.registry import REQUIRED, registry
from autoopt.registry.built_in import PRESETS
from autoopt.registry.compat import TABLE, Answer, answer, answers
from autoopt.spec import load_dag
from autoopt.target import Accelerator

NINE = {
    "OnnxConversion",
    "OnnxOpVersionConversion",
    "OrtTransformersOptimization",
    "OnnxDynamicQuantization",
    "OnnxStaticQuantization",
    "OnnxQuantization",
    "IncStaticQuantization",
    "IncDynamicQuantization",
    "IncQuantization",
}
IPU = ["batchnorm_workaround", "overlap_io", "replace_softmax", "replace_where_with_wherev2"]


OLIVE_0_13: Final = """
    AddOliveMetadata AimetQuantization AppendPrePostProcessingOps AutoAWQQuantizer AutoClip CaptureLayerAnnotations
    CaptureSplitInfo ComposeOnnxModels DoRA DynamicToFixedShape EPContextBinaryGenerator ExtractAdapters Gptq GptqModel
    GraphSurgeries InputNCHWtoNHWC KQuant LoHa LoKr LoRA LoftQ MatMulNBitsToQDQ MergeAdapterWeights MobiusBuilder
    NVModelOptGraphSurgery NVModelOptQuantization OnnxIODataTypeConverter OnnxQuantizationPreprocess
    OpenVINOEncapsulation OpenVINOIoUpdate OpenVINOOptimumConversion OpenVINOQuantizationWithAccuracy
    OpenVINOWeightCompression QNNContextBinaryGenerator QNNConversion QNNModelLibGenerator QairtEncapsulation
    QairtGenAIBuilder QairtMHA2SHA QairtPipelinePass QairtPreparation QuaRot QuarkQuantization Rtn SDLoRA
    SelectiveMixedPrecision SliceGPT SpinQuant StaticLLM VitisAIAddMetaData VitisGenerateModelLLM VitisGenerateModelSD
    """
"""Names in the catalogue of Olive 0.13.0 besides the nine and those of earlier versions."""
LINES = [line for line in TABLE.read_text().splitlines() if "|" in line and not line.startswith("#")]


def test_the_present_catalogue_of_olive_has_answers() -> None:
    assert set(answers()) >= set(OLIVE_0_13.split())


def test_all_eighty_and_the_nine_have_an_answer() -> None:
    found = Counter(each.product for each in answers().values())
    assert found["PopRT"] == 80
    assert set(answers()) >= NINE
    assert all(each.passes or each.remark for each in answers().values())


@pytest.mark.parametrize("found", answers().values(), ids=lambda found: found.name)
def test_an_answer_names_passes_and_parameters_that_exist(found: Answer) -> None:
    for name in found.passes:
        info = registry().info(name)
        needed = {p.name for p in info.parameters if p.default is REQUIRED} - set(found.params)
        if not needed:
            full_config(info, found.params)


@pytest.mark.parametrize("found", answers().values(), ids=lambda found: found.name)
def test_a_name_in_dag_yaml_means_what_the_answer_says(found: Answer) -> None:
    own = {name: name for name in registry().names()}
    known = own | {alias: name for name in own for alias in registry().info(name).aliases}
    if found.name in known:
        assert registry().resolve(found.name) == known[found.name]
        assert known[found.name] in found.passes
    elif len(found.passes) == 1:
        info = registry().info(found.name)
        assert (info.name,) == found.passes
        assert dict(info.presets) == ({} if found.example else found.params)
    else:
        with pytest.raises(InputError) as told:
            registry().resolve(found.name)
        assert found.text in str(told.value)


def test_no_own_alias_stands_for_parameters_too() -> None:
    for found in answers().values():
        if found.presets and len(found.passes) == 1:
            assert registry().info(found.name).presets == found.presets, found.name


def test_a_plan_shows_the_pass_behind_a_name_and_its_parameters() -> None:
    dag = {
        "name": "d",
        "passes": {
            "a": "replace_pow",
            "b": {"pass": "replace_nonzero", "params": {"rules": ["replace_pow"]}},
            "c": {"pass": "OnnxKQuantQuantization", "params": "search"},
        },
        "chains": [["a"], ["b"], ["c"]],
    }
    plan = compile_plan(load_dag(dag), pass_infos(Accelerator()))
    spaces = [chain.space.nodes[chain.nodes[-1].id].config({}) for chain in plan.chains() if chain.nodes[-1].id != "c"]
    assert [space["rules"] for space in spaces] == [["replace_pow"], ["replace_pow"]]
    assert [space["assume"] for space in spaces] == [[], ["one_nonzero"]]
    found = plan.to_json()
    assert found["nodes"] == {"a": "local_rewrites", "b": "local_rewrites", "c": "weight_only_quantization"}
    assert found["aliases"]["a"] == {
        "written": "replace_pow",
        "pass": "local_rewrites",
        "params": {"rules": ["replace_pow"]},
    }
    (searched,) = (chain for chain in plan.chains() if chain.nodes[-1].id == "c")
    assert {searched.space.configs(p)["c"]["algorithm"] for p in searched.space.iterate()} == {"k_quant"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_name_that_implies_parameters_plans_as_its_pass(name: str) -> None:
    dag = {"name": "d", "passes": {"a": {"pass": name, "params": "search"}}, "chains": [["a"]]}
    plan = compile_plan(load_dag(dag), pass_infos(Accelerator()))
    pass_name, params = PRESETS[name]
    assert plan.aliases["a"].to_json() == {"written": name, "pass": pass_name, "params": params}
    (chain,) = plan.chains()
    points = [chain.space.configs(point)["a"] for point in chain.space.iterate()]
    assert points
    assert all(params.items() <= point.items() for point in points)


def test_direct_equivalents_resolve() -> None:
    for name, own in {
        "float_to_half": "float16",
        "unique_name_for_nodes": "name_fix",
        "OnnxStaticQuantization": "static_quantization",
        "manual_sharding": "split_stages",
        "static_int8": "static_quantization",
        "nbits_weight_only": "weight_only_quantization",
        "fp8_qdq": "static_quantization",
        "bnb4": "bnb4_quantization",
    }.items():
        assert registry().resolve(name) == own


def test_no_two_passes_claim_a_name() -> None:
    names = registry().names()
    claims = Counter([*names, *PRESETS, *(alias for name in names for alias in registry().info(name).aliases)])
    assert [name for name, times in claims.items() if times > 1] == []


@pytest.mark.parametrize("name", IPU)
def test_what_is_bound_to_one_chip_says_why(name: str) -> None:
    assert answer(name).passes == ()
    assert answer(name).text.startswith("nothing portable: ")


def test_case_does_not_matter_and_unknown_names_get_the_nearest() -> None:
    assert answer("onnxstaticquantization").passes == ("static_quantization",)
    with pytest.raises(InputError, match="did you mean 'replace_pow'"):
        answer("replace_powr")


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split(" | ")[0])
def test_a_line_has_a_name_passes_parameters_and_a_remark(line: str) -> None:
    name, passes, params, *remark = f"{line} ".split(" | ")
    assert name == name.strip()
    assert name
    assert len(remark) <= 1
    content = json.loads(params.strip().removeprefix("e.g.") or "{}")
    assert isinstance(content, dict)
    if passes.strip() == "-":
        assert not content
        assert remark, "a line without a pass gives the reason"
        assert remark[0].strip()
    assert not content or " or " not in passes, "parameters belong to one pass"


def test_names_are_unique() -> None:
    names = [line.split(" | ")[0] for line in LINES]
    assert len(set(names)) == len(names)


SURGERIES = """
    RenameInputs RenameOutputs InferShapes RemoveShapes RemoveInitializerFromInputs ReorderInputs ReplaceErfWithTanh
    ZeroOutInput RemoveInputs ExposeOutputs ExposeQuantizedOutput DecomposeQuickGelu DecomposeRotaryEmbedding
    RMSNormToL2Norm SimplifiedLayerNormToRMSNorm SimplifiedLayerNormToL2Norm PowReduceSumPowDiv2LpNorm MatMulAddToGemm
    GemmToMatMulAdd RemoveRopeMultiCache AttentionMaskToSequenceLengths ReplaceAttentionMaskValue
    RemoveGidxFromMatMulNBits RemoveQDQ MatMulToTransposeConvTranspose RemoveIntermediarySqueezeAndUnsqueeze QDQToClip
    RemoveDeqLin Non4DModelInputs Non4DModelOutputs StandaloneReduceSum Gather GatherElements Non4DInitializers
    RemoveAllTensorValueShapes Non4DReshape Non4DExpand Non4DTranspose Non4DSlice Non4DLpNorm Flatten
    AddIntermediateTensorsToOutputs ReshapeReduceSum ReshapeClipReduceSum ReduceMax TieWordEmbeddings
    QuantizeEmbeddingInt8 ShareEmbeddingLmHead ReciprocalMulToDiv DeduplicateSubgraphInitializers DeduplicateNodes
    PackedAttentionToLoopMHA PackedAttentionToPackedMHA RenameOutputDims RemoveMemcpy RenameInputDims
"""


@pytest.mark.parametrize("name", SURGERIES.split())
def test_each_kind_of_graph_surgery_has_a_pass_or_a_reason(name: str) -> None:
    found = answer(name)
    assert found.product == "Olive surgery"
    assert found.passes or found.remark
