"""Operator counts, overview and profile leave reports and never a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from bench import step
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.passes.check.reports import summarize
from autoopt.registry import registry


def report(folder: Path, model: onnx.ModelProto, name: str, data: bool = False, **params: Any) -> Any:
    result = step(folder, model, name, data, **params)
    assert result["outcome"] == "unchanged", result["message"]
    assert result["path"] is None
    return result["reports"][name]


def test_every_check_is_an_analysis() -> None:
    names = [name for name in registry().names() if registry().info(name).family == "check"]
    assert len(names) == 7
    assert all(registry().info(name).analysis for name in names)


def test_operators_in_branches_are_counted(tmp_path: Path) -> None:
    assert report(tmp_path, MODELS["branches"](), "operator_counts") == {"If": 1, "MatMul": 1, "Neg": 1}


def test_the_overview_lists_the_largest_weights(tmp_path: Path) -> None:
    found = report(tmp_path, MODELS["mlp"](), "model_overview", largest=1)
    assert found["largest_weights"] == [{"name": "w1", "shape": [64, 64], "bytes": 64 * 64 * 4}]
    assert found["parameters"] == 64 * 64 + 64 + 64 * 8 + 8
    assert [value["name"] for value in found["inputs"]] == ["x"]


@pytest.mark.parametrize("data", [True, False])
def test_the_profile_lists_operators_by_time(tmp_path: Path, data: bool) -> None:
    found = report(tmp_path, MODELS["small_cnn"](), "profile", data, runs=3)
    times = [entry["us"] for entry in found["operators"]]
    assert times == sorted(times, reverse=True)
    assert {entry["op_type"] for entry in found["nodes"]} >= {"Conv"}


def test_a_profile_is_the_median_of_all_but_the_first_run() -> None:
    events = [
        {"cat": "Node", "name": "a_kernel_time", "dur": dur, "args": {"op_name": "Conv"}} for dur in (900, 10, 12, 14)
    ]
    events += [{"cat": "Node", "name": "a_fence_before", "dur": 7, "args": {"op_name": "Conv"}}, {"cat": "Session"}]
    assert summarize(events, top=5) == {
        "total_us": 12,
        "operators": [{"op_type": "Conv", "us": 12}],
        "nodes": [{"name": "a", "op_type": "Conv", "us": 12}],
    }


def test_a_valid_model_is_valid(tmp_path: Path) -> None:
    assert report(tmp_path, MODELS["mlp"](), "checker") == {"valid": True, "message": ""}


def test_an_invalid_model_ends_the_chain_if_strict(tmp_path: Path) -> None:
    bad = made("g (float[2, 4] x) => (float[2, 5] y) { y = MatMul (x, w) }", w=normal(3, 5))
    result = step(tmp_path, bad, "checker")
    assert result["outcome"] == "refused"
    assert "the checker rejects the model" in result["message"]
    assert report(tmp_path, bad, "checker", strict=False)["valid"] is False


@pytest.mark.parametrize("oracle", ["runtime", "reference"])
def test_the_runtime_agrees_with_a_second_opinion(tmp_path: Path, oracle: str) -> None:
    found = report(tmp_path, MODELS["small_cnn"](), "equivalence", oracle=oracle)
    assert found["same"] is True
    assert found["max_relative_error"] < 1e-4


def test_a_different_model_is_detected(tmp_path: Path) -> None:
    origin = io.save(made("g (float[N, 4] x) => (float[N, 4] y) { y = Neg (x) }"), tmp_path / "origin")
    found = report(tmp_path, MODELS["relu_only"](), "equivalence", origin=str(origin))
    assert found["same"] is False
    strict = step(tmp_path, MODELS["relu_only"](), "equivalence", origin=str(origin), strict=True)
    assert (strict["outcome"], "not equivalent" in strict["message"]) == ("refused", True)
