"""Masks that choose between scores and a large negative number, or that are added one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs
from micro_models import made, normal

from autoopt.passes.fusion.attention import fuse_attention

BATCH, HEADS, NEW, KEYS, SIZE = 2, 3, 4, 6, 8
LOWEST = np.finfo(np.float32).min
MASKS = {
    "hidden, as in MPT": "m = Where (hidden, low, s)",
    "seen, as in GPT-Neo": "m = Where (seen, s, low)",
    "biased, then hidden": "b = Add (rise, s)\n m = Where (hidden, low, b)",
    "hidden, then masked": "b = Where (seen, s, low)\n m = Add (b, f)",
    "biased twice, as in BEiT": "b = Add (s, rise)\n m = Add (f, b)",
    "hidden twice": "b = Where (seen, s, low)\n m = Where (hidden, low, b)",
}


def masked(mask: str, low: float, cache: bool = False) -> onnx.ModelProto:
    """Attention with scaled scores; with `cache`, keys and values are what the model returns as its cache too."""
    heads = f"float[B, {HEADS}"
    joined = "keys = Concat <axis = 2> (pk, k)\n values = Concat <axis = 2> (pv, v)"
    if not cache:
        joined = "keys = Identity (k)\n values = Identity (v)"
    past = f", {heads}, P, {SIZE}] pk, {heads}, P, {SIZE}] pv" if cache else ""
    present = f", {heads}, T, {SIZE}] keys, {heads}, T, {SIZE}] values" if cache else ""
    return made(
        f"g ({heads}, S, {SIZE}] q, {heads}, K, {SIZE}] k, {heads}, K, {SIZE}] v, bool[B, 1, 1, T] hidden,"
        f" bool[1, 1, S, T] seen, float[B, 1, S, T] f, float[{HEADS}, 1, T] rise{past})"
        f" => ({heads}, S, {SIZE}] y{present}) {{ {joined}\n kt = Transpose <perm = [0, 1, 3, 2]> (keys)"
        f" d = MatMul (q, kt)\n s = Mul (d, half)\n {MASKS[mask]}\n p = Softmax <axis = -1> (m)"
        f" y = MatMul (p, values) }}",
        half=np.float32(0.5),
        low=np.float32(low),
    )


def arrays(low: float, cache: bool = False) -> dict[str, np.ndarray]:
    hidden = np.zeros((BATCH, 1, 1, KEYS), bool)
    hidden[0, ..., :2] = True  # padded on the left
    hidden[1] = True  # nothing but padding
    seen = np.tril(np.ones((1, 1, NEW, KEYS), bool), KEYS - NEW)
    seen[..., 0, :] = False
    given = {
        "q": normal(BATCH, HEADS, NEW, SIZE),
        "hidden": hidden,
        "seen": seen,
        "f": np.where(hidden | ~seen, np.float32(low), np.float32(0)),
        "rise": normal(HEADS, 1, KEYS, seed=5),
    }
    past = KEYS - NEW if cache else 0
    for seed, name in enumerate(("k", "v"), 1):
        given[name] = normal(BATCH, HEADS, KEYS - past, SIZE, seed=seed)
        if cache:
            given[f"p{name}"] = normal(BATCH, HEADS, past, SIZE, seed=seed + 10)
    return given


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("low", [LOWEST, -1e30, -np.inf])
@pytest.mark.parametrize("mask", list(MASKS))
def test_one_mask_gives_the_same(tmp_path: Path, mask: str, low: float, cache: bool) -> None:
    model, feed = masked(mask, low, cache), arrays(low, cache)
    if mask.endswith("BEiT"):
        feed["f"] = np.maximum(feed["f"], LOWEST)
    expected = outputs(model, tmp_path, feed)
    fused, counts = fuse_attention(model, "cached" if cache else "plain")
    assert counts == {"Attention": 1}
    assert "Softmax" not in ops(fused)
    for new, old in zip(outputs(fused, tmp_path, feed), expected, strict=True):
        np.testing.assert_allclose(new, np.nan_to_num(old), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("low", [-1e4, -10.0, 1e38])
def test_numbers_that_scores_add_to_stay_choices(low: float) -> None:
    """In a row without anything to see, the sum of -1e4 and scores gives their softmax, the choice a mean."""
    model = masked("hidden, as in MPT", low)
    assert fuse_attention(model, "plain") == (model, {})
