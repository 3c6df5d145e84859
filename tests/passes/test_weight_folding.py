"""Weights folded into neighbouring operators."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import compare, ops
from micro_models import MODELS, made, normal

from autoopt.passes.base import Pass
from autoopt.passes.fusion.rule_passes import BatchNormFolding, ConvAffineFolding, MatMulAddGemm, PadFolding

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


@pytest.mark.parametrize(
    "text",
    [
        "p = Conv <group = 2, pads = [1, 1, 1, 1]> (x, w)\n q = Mul (p, s)\n y = Add (t, q)",
        "p = Mul (x, u)\n q = Add (p, v)\n y = Conv <group = 2> (q, w, b)",
    ],
)
def test_scales_and_shifts_by_channel_are_folded(tmp_path: Path, text: str) -> None:
    constants = {"s": normal(6, 1, 1), "t": normal(1, 6, 1, 1), "u": normal(4, 1, 1), "v": normal(1, 4, 1, 1)}
    used = {name: value for name, value in constants.items() if f"{name})" in text or f"({name}," in text}
    if "b)" in text:
        used["b"] = normal(6)
    model = made(f"g (float[N, 4, 5, 5] x) => (float[N, 6, A, B] y) {{ {text} }}", w=normal(6, 2, 3, 3), **used)
    after = ConvAffineFolding()(model)
    assert ops(after) == ["Conv"]
    assert compare(model, after, tmp_path).status == "same"


def test_a_shift_before_padding_is_not_folded() -> None:
    text = "p = Add (x, v)\n y = Conv <pads = [1, 1, 1, 1]> (p, w)"
    model = made(
        f"g (float[N, 4, 5, 5] x) => (float[N, 6, A, B] y) {{ {text} }}", w=normal(6, 4, 3, 3), v=normal(4, 1, 1)
    )
    assert ConvAffineFolding()(model) is model


def test_gemm_becomes_matmul_and_add(tmp_path: Path) -> None:
    model = made(
        "g (float[4, N] x) => (float[N, 3] y){ y = Gemm <alpha = 2.0, beta = 3.0, transA = 1, transB = 1> (x, w, b) }",
        w=normal(3, 4),
        b=normal(3),
    )
    after = MatMulAddGemm()(model)
    assert ops(after) == ["Transpose", "MatMul", "Add"]
    assert compare(model, after, tmp_path).status == "same"
