"""Unusual models that libraries mishandle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops, step
from micro_models import MODELS, made, normal

from autoopt.passes.fusion.weight_folding import BatchNormFolding


@pytest.mark.parametrize(
    "name", ["opset_conversion", "simplify", "onnxslim", "onnxoptimizer", "ort_graph_optimization"]
)
def test_models_without_the_default_operators(tmp_path: Path, name: str) -> None:
    assert step(tmp_path, MODELS["trees"](), name)["outcome"] in ("ok", "unchanged")


@pytest.mark.parametrize("name", ["name_fix", "simplify", "ort_graph_optimization", "dynamic_quantization"])
def test_models_without_any_opset_import(tmp_path: Path, name: str) -> None:
    model = MODELS["mlp"]()
    del model.opset_import[:]
    result = step(tmp_path, model, name)
    assert result["outcome"] in ("ok", "unchanged", "refused"), result["message"]
    assert "Error: " not in result["message"]


def test_an_overridable_weight_is_not_folded() -> None:
    """It is an input with a default value: callers may give another one."""
    model = made(
        "g (float[N, 8] x, float[6] s) => (float[N, 6] y) "
        "{ h = Gemm (x, w, b)\n y = BatchNormalization (h, s, o, m, v) }",
        w=normal(8, 6),
        b=normal(6),
        s=np.ones(6, np.float32),
        o=normal(6),
        m=normal(6, seed=1),
        v=np.ones(6, np.float32),
    )
    assert "s" in {value.name for value in BatchNormFolding()(model).graph.input}
    assert "BatchNormalization" in ops(BatchNormFolding()(model))
