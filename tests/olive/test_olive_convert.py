"""Configurations of Olive as dag.yaml: whole ones, data, goals, search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from autoopt.errors import ConfigError
from autoopt.olive import convert
from autoopt.olive.config import Remarks
from autoopt.spec import load_dag
from autoopt.spec.source import Source

METRICS = [
    {
        "name": "quality",
        "type": "accuracy",
        "data_config": "digits",
        "sub_types": [{"name": "accuracy_score", "priority": 1, "goal": {"type": "max-degradation", "value": 0.02}}],
    },
    {"name": "time", "type": "latency", "sub_types": [{"name": "p50", "priority": 2}]},
]
NEW = {
    "input_model": {"type": "ONNXModel", "model_path": "models/net.onnx"},
    "systems": {"here": {"type": "LocalSystem", "accelerators": [{"device": "cpu", "memory": "2GB"}]}},
    "data_configs": [
        {
            "name": "digits",
            "type": "HuggingfaceContainer",
            "load_dataset_config": {"data_name": "digits", "split": "test"},
            "pre_process_data_config": {"label_col": "digit", "max_samples": 50},
        }
    ],
    "evaluators": {"main": {"metrics": METRICS}},
    "passes": {
        "peephole": {"type": "OnnxPeepholeOptimizer"},
        "quantize": [
            {"type": "OnnxDynamicQuantization", "weight_type": "QInt8"},
            {"type": "OnnxStaticQuantization", "calibrate_method": ["MinMax", "Entropy"], "data_config": "digits"},
        ],
    },
    "search_strategy": {"execution_order": "joint", "sampler": "tpe", "max_samples": 7, "seed": 3, "max_time": 90},
    "evaluator": "main",
    "target": "here",
    "cache_dir": "cache",
}
OLD: Any = {
    "input_model": {"type": "ONNXModel", "config": {"model_path": "models/net.onnx"}},
    "systems": {"here": {"type": "LocalSystem", "config": {"accelerators": [{"device": "cpu", "memory": "2GB"}]}}},
    "data_configs": {"digits": NEW["data_configs"][0]},
    "evaluators": {"main": {"metrics": METRICS}},
    "passes": {
        "peephole": {"type": "OnnxPeepholeOptimizer", "config": {}},
        "quantize": [
            {"type": "OnnxDynamicQuantization", "config": {"weight_type": "QInt8"}},
            {
                "type": "OnnxStaticQuantization",
                "config": {"calibrate_method": ["MinMax", "Entropy"], "data_config": "digits"},
            },
        ],
    },
    "engine": {
        "search_strategy": {
            "execution_order": "joint",
            "search_algorithm": "tpe",
            "search_algorithm_config": {"num_samples": 7, "seed": 3},
            "max_time": 90,
        },
        "evaluator": "main",
        "target": "here",
    },
}
DAG = {
    "name": "net",
    "model": "../models/net.onnx",
    "data": {"evaluation": {"data_name": "digits", "split": "test", "label_col": "digit", "limit": 50}},
    "target": {"device": "cpu", "memory": 2 * 2**30},
    "passes": {
        "peephole": {"pass": "simplify", "params": {"engine": "onnxscript"}},
        "quantize_1": {"pass": "dynamic_quantization", "params": {"weight_type": "QInt8"}, "search": "all"},
        "quantize_2": {
            "pass": "static_quantization",
            "params": {"calibrate_method": {"search": ["MinMax", "Entropy"]}},
            "search": "all",
        },
    },
    "stages": ["peephole", ["quantize_1", "quantize_2"]],
    "objectives": ["latency_p50"],
    "constraints": [{"metric": "accuracy", "max_drop": 0.02}],
    "search": {"sampler": "tpe", "trials": 7, "minutes": 1.5, "seed": 3},
}


@pytest.mark.parametrize("config", [NEW, OLD], ids=["new", "old"])
def test_old_and_new_forms_of_a_configuration_give_the_same_dag(config: Any, tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    file.write_text(json.dumps(config))
    conversion = convert(file, tmp_path / "dags")
    assert conversion.dag == DAG
    assert load_dag(conversion.dag).search.trials == 7
    texts = "\n".join(conversion.remarks)
    assert "accuracy becomes a constraint only" in texts
    assert all(remark.startswith(str(file)) for remark in conversion.remarks)


def test_configurations_without_usable_passes_are_refused(converted: Any) -> None:
    with pytest.raises(ConfigError, match="has no passes; 'autoopt run MODEL' proposes"):
        converted(passes={})
    with pytest.raises(ConfigError, match="because Olive chooses them itself"):
        converted(passes={}, auto_optimizer_config={"precisions": ["int8"]})
    with pytest.raises(ConfigError, match="none of its passes has an equivalent") as caught:
        converted(passes={"tune": {"type": "LoRA"}})
    assert "LoRA is left out" in str(caught.value.others[0])


def test_placeholders_of_templates_are_refused_with_file_and_field(converted: Any, tmp_path: Path) -> None:
    place = rf"{tmp_path}/config\.json:\d+: "
    systems = {"here": {"type": "LocalSystem", "accelerators": [{"execution_providers": "<place_holder>"}]}}
    with pytest.raises(ConfigError, match=place + r"gives a wrong target\.execution_provider"):
        converted(systems=systems, target="here")
    for flow in ("<place_holder>", {}):
        with pytest.raises(ConfigError, match=place + "pass_flows: names no pass"):
            converted(pass_flows=[[flow]])


def test_a_model_of_another_kind_gets_the_command_that_exports_it(converted: Any) -> None:
    conversion = converted(input_model={"type": "HfModel", "model_path": "some/bert"})
    assert "model" not in conversion.dag
    assert "optimum-cli export onnx --model some/bert" in conversion.remarks[0]
    conversion = converted(input_model={"type": "PyTorchModel"})
    assert "config.json:2: input_model: is not an ONNX model but PyTorchModel" in conversion.remarks[0]


def test_sections_that_autoopt_does_not_need_are_named(converted: Any) -> None:
    conversion = converted(packaging_config={"type": "Zipfile"}, workflow_id="my work")
    assert conversion.dag["name"] == "my-work"
    assert "packaging_config: has no equivalent; out/ is a package" in conversion.remarks[-1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "cpu", "OnnxQuantization", "1GB"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "name", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(field=st.sampled_from(sorted(NEW)), key=st.sampled_from(["", "type", "main", "here", "quantize"]), value=JSON)
@hypothesis_settings(max_examples=60)
def test_any_wrong_section_gives_a_dag_or_one_line(field: str, key: str, value: Any, tmp_path: Path) -> None:
    section: Any = NEW[field]
    config = {**NEW, field: value}
    if key and isinstance(section, dict):
        config[field] = {**section, key: value}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    try:
        dag = convert(file, tmp_path).dag
    except ConfigError:
        return
    assert load_dag(dag).passes


def test_remarks_come_once_and_in_the_order_of_the_file() -> None:
    remarks = Remarks(Source("c.json", lines={("b",): 9, ("a",): 2}))
    for _ in range(2):
        remarks.add(("b", "x"), "second", "do that")
        remarks.add(("a",), "first")
    assert remarks.texts() == ("c.json:2: a: first", "c.json:9: b.x: second; do that")


Convert = Any
HUB = {"data_name": "glue", "subset": "mrpc", "split": "validation"}


def converted_data(converted: Convert, *configs: Any, calibration: str = "b") -> Any:
    metrics = [{"type": "accuracy", "data_config": "a"}, {"type": "latency", "data_config": "a"}]
    passes = {"q": {"type": "OnnxStaticQuantization", "data_config": calibration}}
    return converted(data_configs=list(configs), evaluators={"m": {"metrics": metrics}}, passes=passes)


def test_data_of_metrics_and_of_passes_are_told_apart(converted: Convert) -> None:
    first = {
        "name": "a",
        "load_dataset_config": HUB,
        "pre_process_data_config": {"input_cols": ["s"], "label_cols": ["l"]},
        "dataloader_config": {"batch_size": 8},
    }
    second = {
        "name": "b",
        "load_dataset_config": {**HUB, "split": "train"},
        "pre_process_data_config": {"max_samples": 9},
    }
    conversion = converted_data(converted, first, second)
    assert conversion.dag["data"] == {
        "evaluation": {**HUB, "input_cols": ["s"], "label_col": "l", "batch_size": 8},
        "calibration": {**HUB, "split": "train", "limit": 9},
    }
    assert "add pre_process: {type: tokenize" in "\n".join(conversion.remarks)


def test_one_data_set_for_both_is_named_once(converted: Convert) -> None:
    data = converted_data(converted, {"name": "a", "load_dataset_config": HUB}, calibration="a").dag["data"]
    assert data == {"evaluation": HUB}


def test_the_data_set_of_an_old_input_model_is_found(converted: Convert) -> None:
    model = {
        "type": "PyTorchModel",
        "config": {"hf_config": {"model_name": "x/y", "dataset": {**HUB, "batch_size": 1}}},
    }
    conversion = converted(input_model=model)
    assert conversion.dag["data"] == {"evaluation": HUB}
    assert "optimum-cli export onnx --model x/y" in conversion.remarks[0]


def test_data_that_code_loads_is_left_out_with_the_way_to_get_it(converted: Convert) -> None:
    script = {"name": "a", "user_script": "u.py", "load_dataset_config": {"type": "mine"}}
    dummy = {"name": "b", "type": "DummyDataContainer"}
    conversion = converted_data(converted, script, dummy)
    assert "data" not in conversion.dag
    remarks = "\n".join(conversion.remarks)
    assert "the data that u.py loads is not converted; register the function with @register_load_dataset" in remarks
    assert "random inputs are not data" in remarks


def test_pre_processing_by_code_is_named(converted: Convert) -> None:
    steps = {"type": "crop", "size": 5}
    config = {"name": "a", "user_script": "u.py", "load_dataset_config": HUB, "pre_process_data_config": steps}
    conversion = converted_data(converted, config, calibration="a")
    assert conversion.dag["data"] == {"evaluation": {**HUB, "limit": 5}}
    assert "pre-processing 'crop' of u.py is not converted" in conversion.remarks[0]


Convert = Any


def converted_goals(converted: Convert, *metrics: Any) -> Any:
    return converted(evaluators={"main": {"metrics": list(metrics)}})


def metric(kind: str, name: str, goal: str = "", value: float = 0, priority: int = 1) -> Any:
    sub_type: dict[str, Any] = {"name": name, "priority": priority}
    if goal:
        sub_type["goal"] = {"type": goal, "value": value}
    return {"name": kind, "type": kind, "sub_types": [sub_type]}


@pytest.mark.parametrize(
    ("goal", "value", "bound"),
    [
        ("threshold", 0.9, {"metric": "accuracy", "min": 0.9}),
        ("max-degradation", 0.02, {"metric": "accuracy", "max_drop": 0.02}),
        ("percent-max-degradation", 2, {"metric": "accuracy", "min_ratio": 0.98}),
        ("percent-min-improvement", 2, {"metric": "accuracy", "min_ratio": 1.02}),
    ],
)
def test_goals_of_a_metric_that_is_maximized(converted: Convert, goal: str, value: float, bound: Any) -> None:
    assert converted_goals(converted, metric("accuracy", "accuracy_score", goal, value)).dag["constraints"] == [bound]


@pytest.mark.parametrize(
    ("goal", "value", "bound"),
    [
        ("threshold", 5, {"metric": "latency_mean", "max": 5}),
        ("max-degradation", 1, {"metric": "latency_mean", "max_drop": 1}),
        ("percent-max-degradation", 10, {"metric": "latency_mean", "max_ratio": 1.1}),
        ("percent-min-improvement", 20, {"metric": "latency_mean", "max_ratio": 0.8}),
    ],
)
def test_goals_of_a_metric_that_is_minimized(converted: Convert, goal: str, value: float, bound: Any) -> None:
    assert converted_goals(converted, metric("latency", "avg", goal, value)).dag["constraints"] == [bound]


def test_priorities_give_the_order_of_objectives_and_sub_types_without_one_are_no_objective(converted: Convert) -> None:
    metrics = [
        metric("latency", "avg", priority=2),
        metric("size_on_disk", "bytes"),
        metric("accuracy", "f1", priority=-1),
    ]
    assert converted_goals(converted, *metrics).dag["objectives"] == ["size", "latency_mean"]


def test_an_improvement_that_is_asked_for_is_an_objective(converted: Convert) -> None:
    accuracy = metric("accuracy", "accuracy_score", "max-degradation", 0.05)
    latency = metric("latency", "avg", "percent-min-improvement", 10, priority=-1)
    assert converted_goals(converted, accuracy, latency).dag["objectives"] == ["latency_mean"]


def test_an_objective_is_named_once(converted: Convert) -> None:
    with_two_providers = [metric("latency", "avg"), metric("latency", "avg", priority=2)]
    assert converted_goals(converted, *with_two_providers).dag["objectives"] == ["latency_mean"]


def test_what_has_no_equivalent_is_named(converted: Convert) -> None:
    custom = {"name": "mine", "type": "custom", "sub_types": [{"name": "x"}]}
    rejected = [metric("accuracy", "precision"), metric("latency", "avg", "min-improvement", 3), custom]
    remarks = "\n".join(converted_goals(converted, *rejected).remarks)
    assert "no metric accuracy precision; docs/quality.md lists the metrics" in remarks
    assert "no goal 'min-improvement'; use min_ratio or max_ratio" in remarks
    assert "the code of the custom metric 'mine' is not converted" in remarks
    language = converted(evaluators={"m": {"type": "LMEvaluator", "tasks": ["mmlu"]}})
    assert "no evaluator 'LMEvaluator'" in language.remarks[0]


def test_latencies_that_are_only_reported_are_no_loss(converted: Convert) -> None:
    assert converted_goals(converted, metric("latency", "max", priority=-1)).remarks == ()


def test_several_evaluators_need_a_name(converted: Convert) -> None:
    evaluators = {name: {"metrics": [metric("latency", name)]} for name in ("p50", "p90")}
    assert "objectives" not in converted(evaluators=evaluators).dag
    assert converted(evaluators=evaluators, evaluator="p90").dag["objectives"] == ["latency_p90"]
    assert converted(evaluator=evaluators["p50"]).dag["objectives"] == ["latency_p50"]


Convert = Any


@pytest.mark.parametrize(
    ("strategy", "search"),
    [
        ({"sampler": "random"}, {"strategy": "per-chain", "sampler": "random"}),
        ({"sampler": "sequential"}, {"strategy": "per-chain", "sampler": "exhaustive"}),
        (True, {"strategy": "per-chain", "sampler": "exhaustive"}),
        ({"sampler": "tpe", "sampler_config": {"max_samples": 0}, "max_iter": 5}, {"sampler": "tpe", "trials": 5}),
        ({"search_algorithm": "tpe", "num_samples": 3, "seed": 0}, {"sampler": "tpe", "trials": 3, "seed": 0}),
        (
            {"sampler": "tpe", "execution_order": "pass-by-pass", "stop_when_goals_met": True},
            {"sampler": "tpe", "strategy": "per-chain", "order": "pass-by-pass", "stop_when_goals_met": True},
        ),
    ],
)
def test_strategies_have_an_equivalent(converted: Convert, strategy: Any, search: Any) -> None:
    assert converted(search_strategy=strategy).dag["search"] == search


@pytest.mark.parametrize("strategy", [None, False])
def test_without_a_strategy_nothing_is_searched(converted: Convert, strategy: Any) -> None:
    assert "search" not in converted(search_strategy=strategy).dag


def test_what_is_not_needed_is_named(converted: Convert) -> None:
    conversion = converted(search_strategy={"sampler": "annealing", "output_model_num": 5})
    assert "no sampler 'annealing'" in conversion.remarks[0]
    assert "output_model_num: is not needed; every model stays in the store" in conversion.remarks[1]
