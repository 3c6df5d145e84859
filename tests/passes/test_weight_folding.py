"""Weights folded into neighbouring operators."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import ops
from micro_models import MODELS
from rule_bench import compare

from autoopt.passes.base import Pass
from autoopt.passes.fusion.weight_folding import BatchNormFolding, ConvAffineFolding, MatMulAddGemm, PadFolding

FOLDED = [
    (BatchNormFolding(), "conv_batchnorm", ["Conv", "Relu"]),
    (BatchNormFolding(), "gemm_batchnorm", ["Gemm"]),
    (ConvAffineFolding(), "conv_scale_shift", ["Conv"]),
    (PadFolding(), "pad_conv", ["Conv"]),
]


@pytest.mark.parametrize(("pass_", "name", "remaining"), FOLDED, ids=[name for _, name, _ in FOLDED])
def test_weights_are_folded_and_outputs_stay_equal(
    tmp_path: Path, pass_: Pass, name: str, remaining: list[str]
) -> None:
    model = MODELS[name]()
    after = pass_(model)
    assert set(remaining) <= set(ops(after))
    assert len(ops(after)) < len(ops(model))
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize("pass_", [BatchNormFolding(), PadFolding(), MatMulAddGemm()])
def test_models_without_the_pattern_are_unchanged(pass_: Pass) -> None:
    model = MODELS["relu_only"]()
    assert pass_(model) is model


def test_batch_normalization_alone_has_nothing_to_fold_into() -> None:
    model = MODELS["lone_batchnorm"]()
    assert BatchNormFolding()(model) is model


def test_matmul_and_add_become_gemm(tmp_path: Path) -> None:
    model = MODELS["mlp"]()
    gemm = MatMulAddGemm(direction="gemm")(model)
    assert "Gemm" in ops(gemm)
    assert "MatMul" not in ops(gemm)
    assert compare(model, gemm, tmp_path).status == "same"
