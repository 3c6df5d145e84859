"""Olive's data configs."""

from __future__ import annotations

from typing import Any

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
