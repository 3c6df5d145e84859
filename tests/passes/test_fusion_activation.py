"""Activations joined into one operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import compare, ops
from micro_models import MODELS, made

from autoopt.passes.fusion.rule_passes import HardSigmoidFusion

CONSTANTS = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6), "sixth": np.float32(1 / 6)}
TEXT = "g (float[2, 4] x) => (float[2, 4] y) {{ a = Add ({terms})\n c = Clip (a, zero, six)\n {rest} }}"


@pytest.mark.parametrize(
    ("terms", "rest", "remaining"),
    [
        ("x, three", "y = Div (c, six)", ["HardSigmoid"]),
        ("three, x", "y = Mul (sixth, c)", ["HardSigmoid"]),
        ("x, three", "p = Mul (x, c)\n y = Div (p, six)", ["HardSigmoid", "Mul"]),
        ("x, three", "p = Mul (c, x)\n y = Mul (p, sixth)", ["HardSigmoid", "Mul"]),
    ],
)
def test_hard_sigmoid_and_hard_swish_are_joined_in_every_form(
    tmp_path: Path, terms: str, rest: str, remaining: list[str]
) -> None:
    model = made(TEXT.format(terms=terms, rest=rest), **CONSTANTS)
    after = HardSigmoidFusion()(model)
    assert [op for op in ops(after) if op != "Constant"] == remaining
    assert compare(model, after, tmp_path).status == "same"


@pytest.mark.parametrize(
    ("rest", "changes"),
    [
        ("y = Div (c, three)", {}),
        ("y = Div (c, six)", {"zero": np.float32(-1)}),
        ("y = Div (c, six)", {"six": np.float32([6, 6, 6, 5])}),
        ("y = Div (c, six)\n d = Neg (c)", {}),
    ],
)
def test_other_clipped_sums_stay(rest: str, changes: dict[str, np.ndarray]) -> None:
    text = TEXT.format(terms="x, three", rest=rest)
    if "Neg" in rest:
        text = text.replace("(float[2, 4] y)", "(float[2, 4] y, float[2, 4] d)")
    model = made(text, **{**CONSTANTS, **changes})
    assert HardSigmoidFusion()(model) is model


def test_models_without_clip_are_unchanged() -> None:
    model = MODELS["relu_only"]()
    assert HardSigmoidFusion()(model) is model
