"""Bias correction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench import outputs, saved, step
from micro_models import MODELS, made, normal

from autoopt.passes.quantize.bias_correction import correctable
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def test_the_mean_of_each_channel_comes_closer_to_the_float_model(tmp_path: Path) -> None:
    weights = normal(6, 3, 3, 3)
    weights[0] *= 50  # one scale for all channels is coarse for the others
    model = made(
        "g (float[1, 3, 12, 12] x) => (float[1, 6, 10, 10] y) { p = Relu (x)\n y = Conv (p, w, b) }",
        w=weights,
        b=normal(6),
    )
    feeds = [next(synthetic_feeds(model, seed=seed)) for seed in range(8)]
    expected = np.mean([outputs(model, tmp_path, feed)[0] for feed in feeds], axis=(0, 1, 3, 4))
    errors = []
    for corrected in (False, True):
        folder = tmp_path / str(corrected)
        quantized = saved(step(folder, model, "static_quantization", True, bias_correction=corrected))
        means = np.mean([outputs(quantized, tmp_path, feed)[0] for feed in feeds], axis=(0, 1, 3, 4))
        errors.append(float(np.abs(means - expected)[1:].mean()))
    assert errors[1] < errors[0] / 2, errors


def test_only_layers_with_a_bias_can_be_corrected() -> None:
    model = MODELS["gemm_mlp"]()
    names = [node.name for node in correctable(model, [])]
    assert names
    assert not correctable(model, names)
    assert not correctable(MODELS["mlp"](), [])
