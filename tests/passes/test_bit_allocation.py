"""Matrices that need more bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench import outputs
from micro_models import made, normal

from autoopt.passes.quantize.bit_allocation import most_sensitive, rounding_noise
from autoopt.passes.quantize.block_grid import BlockGrid


def test_noise_is_that_of_the_outputs_but_the_cache_with_one_matrix_rounded(tmp_path: Path) -> None:
    grid = BlockGrid(4, 16, True)
    weights = {"v": normal(16, 16), "w": normal(16, 16, seed=1)}
    text = (
        "g (int64[N, S] input_ids, float[N, 16] x, float[N, 1, P, 4] past_key)"
        " => (float[N, 16] y, float[N, 1, P, 4] present_key)"
        "{ h = MatMul (x, v)\n r = Tanh (h)\n y = MatMul (r, w)\n"
        " sum = ReduceSum <keepdims = 0> (h)\n present_key = Mul (past_key, sum) }"
    )
    model = made(text, **weights)
    tokens, past = np.zeros((4, 1), np.int64), normal(4, 1, 3, 4, seed=3)
    feed = {"input_ids": tokens, "x": normal(4, 16, seed=2), "past_key": past}
    noise = rounding_noise(model, [model.graph.node[0], model.graph.node[2]], grid, [feed], tmp_path)
    exact = outputs(model, tmp_path, feed)[0]
    for name in weights:
        rounded = made(text, **{**weights, name: grid.rounded(weights[name])})
        difference = outputs(rounded, tmp_path, feed)[0] - exact
        np.testing.assert_allclose(noise[name], np.square(difference).sum() / np.square(exact).sum(), rtol=1e-3)


def test_the_noisiest_for_their_size_are_chosen_while_they_fit() -> None:
    noise = {"large": 8.0, "small": 1.0, "tiny": 0.01}
    sizes = {"large": 80, "small": 5, "tiny": 15}
    assert most_sensitive(noise, sizes, 0) == set()
    assert most_sensitive(noise, sizes, 0.2) == {"small", "tiny"}
    assert most_sensitive(noise, sizes, 0.85) == {"small", "large"}
    assert most_sensitive(noise, sizes, 1) == set(sizes)
