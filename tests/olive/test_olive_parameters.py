"""Parameters of Olive's passes."""

from __future__ import annotations

from typing import Any

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
