"""The checker and the equivalence check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from bench import step
from micro_models import MODELS, made, normal

from autoopt.model import io


def report(folder: Path, model: onnx.ModelProto, name: str, data: bool = False, **params: Any) -> Any:
    result = step(folder, model, name, data, **params)
    assert result["outcome"] == "unchanged", result["message"]
    assert result["path"] is None
    return result["reports"][name]


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
