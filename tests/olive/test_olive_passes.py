"""Passes of Olive as nodes, with their parameters."""

from __future__ import annotations

from typing import Any

Convert = Any
SEARCH = {"sampler": "tpe"}


def test_a_pass_without_an_equivalent_is_left_out_with_the_reason(converted: Convert) -> None:
    passes = {"lora": {"type": "LoRA"}, "own": {"type": "MyPass"}, "half": {"type": "onnxfloattofloat16"}}
    conversion = converted(passes=passes)
    assert conversion.dag["stages"] == ["half"]
    assert any("passes.lora: LoRA is left out: fine-tuning" in remark for remark in conversion.remarks)
    assert any("passes.own: no pass 'MyPass'" in remark for remark in conversion.remarks)


def test_quantization_without_a_mode_is_both_where_it_is_searched_and_static_elsewhere(converted: Convert) -> None:
    passes = {"q": {"type": "OnnxQuantization", "per_channel": True}}
    searched = converted(passes=passes, search_strategy=SEARCH).dag
    assert searched["stages"] == [["q_dynamic", "q_static"]]
    assert searched["passes"]["q_static"] == {
        "pass": "static_quantization",
        "params": {"per_channel": True},
        "search": "all",
    }
    fixed = converted(passes=passes).dag
    assert fixed["passes"] == {"q": {"pass": "static_quantization", "params": {"per_channel": True}}}


def test_disabled_search_fixes_the_parameters(converted: Convert) -> None:
    passes = {"q": {"type": "OnnxDynamicQuantization", "disable_search": True}}
    assert converted(passes=passes, search_strategy=SEARCH).dag["passes"] == {"q": {"pass": "dynamic_quantization"}}


def test_session_tuning_is_searched_also_without_a_strategy(converted: Convert) -> None:
    passes = {"tune": {"type": "OrtPerfTuning", "data_config": "d"}}
    assert converted(passes=passes).dag["passes"] == {"tune": {"pass": "session_tuning", "search": "all"}}


def test_preprocessing_and_float16_become_nodes_of_their_own(converted: Convert) -> None:
    passes = {
        "fuse": {"type": "OrtTransformersOptimization", "float16": True, "keep_io_types": True},
        "q": {"type": "OnnxQuantization", "quant_preprocess": True},
    }
    dag = converted(passes=passes, search_strategy=SEARCH).dag
    assert dag["chains"] == [["fuse", "fuse_float16", "q_pre", "q_dynamic"], ["fuse", "fuse_float16", "q_static"]]
    assert dag["passes"]["fuse_float16"] == {"pass": "float16", "params": {"keep_io_types": True}}


def test_activations_of_16_bits_stay(converted: Convert) -> None:
    passes = {"q": {"type": "OnnxStaticQuantization", "activation_type": "uint16", "precision": "int8"}}
    params = {"activation_type": "QUInt16", "weight_type": "QInt8"}
    assert converted(passes=passes).dag["passes"] == {"q": {"pass": "static_quantization", "params": params}}


def test_pass_flows_and_builds_become_chains_of_what_is_left(converted: Convert) -> None:
    passes = {
        "export": {"type": "OnnxConversion"},
        "fuse": {"type": "OnnxScriptFusion"},
        "q": {"type": "OnnxDynamicQuantization"},
        "unused": {"type": "OnnxFloatToFloat16"},
    }
    flows = [["export", "fuse", "q"], ["export", "q"], ["q"]]
    dag = converted(passes=passes, pass_flows=flows).dag
    assert dag["chains"] == [["fuse", "q"], ["q"]]
    assert [*dag["passes"]] == ["fuse", "q"]
    builds = {
        "_default": {"output_dir": "out"},
        "one": {"pipeline": ["export", "fuse", "q"]},
        "two": {"pipeline": ["q"]},
    }
    assert converted(passes=passes, builds=builds).dag["chains"] == [["fuse", "q"], ["q"]]


def test_shapes_are_fixed_by_dimension_or_by_input(converted: Convert) -> None:
    fixed = {"type": "DynamicToFixedShape", "dim_param": ["batch"], "dim_value": [4]}
    node = converted(passes={"fix": fixed}).dag["passes"]["fix"]
    assert node == {"pass": "fix_dim_param", "params": {"dim_param": "batch", "value": 4}}
    fixed = {"type": "DynamicToFixedShape", "dim_param": ["batch", "length"], "dim_value": [1, 128]}
    dag = converted(passes={"fix": fixed}).dag
    assert dag["stages"] == ["fix_batch", "fix"]
    assert [node["params"] for node in dag["passes"].values()] == [
        {"dim_param": "batch", "value": 1},
        {"dim_param": "length", "value": 128},
    ]
    fixed = {"type": "DynamicToFixedShape", "input_name": ["x"], "input_shape": [[1, 3]]}
    node = converted(passes={"fix": fixed}).dag["passes"]["fix"]
    assert node == {"pass": "fix_input_shape", "params": {"shapes": {"x": [1, 3]}}}


def test_what_cannot_follow_in_one_chain_is_left_out_with_the_way_to_try_both(converted: Convert) -> None:
    passes = {
        "g": {"type": "KQuant", "lm_head": False},
        "r": {"type": "Rtn"},
        "qdq": {"type": "MatMulNBitsToQDQ", "use_int4": True},
    }
    conversion = converted(passes=passes)
    assert conversion.dag["passes"] == {
        "g": {"pass": "weight_only_quantization", "params": {"algorithm": "k_quant", "head_bits": 32}},
        "qdq": {"pass": "matmul_nbits_to_qdq", "params": {"signed": True}},
    }
    assert any("make them one stage: [g, r]" in remark for remark in conversion.remarks)


def test_smooth_quantization_among_recipes_becomes_a_node(converted: Convert) -> None:
    recipes = {"smooth_quant": True, "smooth_quant_args": {"alpha": 0.7}}
    passes = {"q": {"type": "IncStaticQuantization", "recipes": recipes}}
    conversion = converted(passes=passes)
    assert conversion.dag["stages"] == ["q_smooth", "q"]
    assert conversion.dag["passes"]["q_smooth"] == {"pass": "smooth_quant", "params": {"alpha": 0.7}}
    assert not any("recipes" in remark for remark in conversion.remarks)


def test_fusions_that_are_off_are_disabled(converted: Convert) -> None:
    options = {"enable_gelu": True, "enable_bias_add": False, "enable_attention": True, "enable_shape_inference": False}
    passes = {"fuse": {"type": "OrtTransformersOptimization", "optimization_options": options}}
    params = converted(passes=passes).dag["passes"]["fuse"]["params"]
    assert params["enable_gelu"] is True
    assert params["disabled_fusions"] == ["bias_add", "shape_inference"]


def test_four_bits_choose_calibrated_weights(converted: Convert) -> None:
    passes = {"q": {"type": "NVModelOptQuantization", "precision": "int4", "algorithm": "AWQ"}}
    assert converted(passes=passes).dag["passes"] == {
        "q": {"pass": "calibrated_weight_quantization", "params": {"algorithm": "awq"}}
    }
    passes = {"q": {"type": "NVModelOptQuantization", "precision": "int8"}}
    assert converted(passes=passes).dag["passes"] == {
        "q": {"pass": "static_quantization", "params": {"weight_type": "QInt8"}}
    }


Convert = Any


def params_of(converted: Convert, **params: Any) -> tuple[Any, str]:
    """The parameters of a static quantization, and the remarks."""
    conversion = converted(passes={"q": {"type": "OnnxStaticQuantization", **params}})
    return conversion.dag["passes"]["q"].get("params", {}), "\n".join(conversion.remarks)


def test_names_and_values_are_translated(converted: Convert) -> None:
    given = {"precision": "uint8", "op_types_to_quantize": ["Conv"], "extra_options": {"ActivationSymmetric": True}}
    params, remarks = params_of(converted, **given)
    assert params == {"weight_type": "QUInt8", "op_types": ["Conv"], "activation_symmetric": True}
    assert remarks == ""


def test_parameters_of_adapters_are_translated(converted: Convert) -> None:
    given = {"save_format": "safetensors", "optional_inputs": True, "make_inputs": True}
    conversion = converted(passes={"q": {"type": "ExtractAdapters", **given}})
    assert conversion.dag["passes"]["q"]["params"] == {"file_format": "safetensors", "defaults": "empty"}
    assert "make_inputs: is left out" in "\n".join(conversion.remarks)


def test_search_values_stay_search_values(converted: Convert) -> None:
    categorical = {"olive_parameter_type": "SearchParameter", "type": "Categorical", "support": ["QDQ", "QOperator"]}
    given = {"weight_type": ["int8", "uint8"], "quant_format": categorical, "per_channel": "SEARCHABLE_VALUES"}
    params, _ = params_of(converted, **given, reduce_range="DEFAULT_VALUE", activation_type=["QInt8"])
    assert params == {
        "weight_type": {"search": ["QInt8", "QUInt8"]},
        "quant_format": {"search": ["QDQ", "QOperator"]},
        "per_channel": "search",
        "reduce_range": "default",
        "activation_type": "QInt8",
    }


def test_unknown_parameters_and_values_are_named(converted: Convert) -> None:
    conditional = {"olive_parameter_type": "SearchParameter", "type": "Conditional"}
    params, remarks = params_of(converted, frobnicate=1, calibrate_method="Best", quant_format=conditional)
    assert params == {}
    assert "passes.q.frobnicate: is left out: static_quantization has no such parameter" in remarks
    assert "passes.q.calibrate_method: is left out: calibrate_method must be" in remarks
    assert "passes.q.quant_format: is left out: searches Conditional values; write {search: [...]}" in remarks


def test_what_autoopt_does_by_itself_is_said_only_where_it_was_asked_for(converted: Convert) -> None:
    assert params_of(converted, save_as_external_data=False) == ({}, "")
    assert "stores large weights beside the model itself" in params_of(converted, save_as_external_data=True)[1]


def test_lists_of_session_options_are_searched(converted: Convert) -> None:
    tuning = {
        "type": "OrtSessionParamsTuning",
        "opt_level_list": [1, 99],
        "execution_mode_list": ["ORT_SEQUENTIAL"],
        "intra_thread_num_list": [1, 2],
    }
    assert converted(passes={"tune": tuning}).dag["passes"]["tune"]["params"] == {
        "graph_optimization_level": {"search": ["basic", "all"]},
        "execution_mode": "sequential",
        "intra_op_num_threads": {"search": [1, 2]},
    }
