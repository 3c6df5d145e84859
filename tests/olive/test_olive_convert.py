"""Whole configurations of Olive, old and new ones."""

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
    with pytest.raises(ConfigError, match=place + "pass_flows: names no pass"):
        converted(pass_flows=[["<place_holder>"]])


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
