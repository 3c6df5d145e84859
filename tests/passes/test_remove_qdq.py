"""QDQ models turned back into float models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench import ops
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.passes.quantize.remove_qdq import RemoveQdq
from autoopt.passes.verification.equivalence import run_once


def test_pairs_go_and_weights_become_floats(tmp_path: Path) -> None:
    scales = np.array([0.1, 0.2, 0.3], np.float32)
    weights = (normal(4, 3) * 20).astype(np.int8)
    model = made(
        "g (float[2, 4] x) => (float[2, 3] y)"
        "{ q = QuantizeLinear (x, s, z)\n d = DequantizeLinear (q, s, z)\n"
        "w = DequantizeLinear <axis = 1> (v, t)\n y = MatMul (d, w) }",
        s=np.float32(0.02),
        z=np.uint8(128),
        v=weights,
        t=scales,
    )
    after = RemoveQdq()(model)
    assert ops(after) == ["MatMul"]
    x = normal(2, 4)
    (outputs,) = run_once(io.save(after, tmp_path), {"x": x})
    np.testing.assert_allclose(outputs, x @ (weights * scales), rtol=1e-5)


def test_float_models_are_unchanged() -> None:
    model = MODELS["mlp"]()
    assert RemoveQdq()(model) is model
