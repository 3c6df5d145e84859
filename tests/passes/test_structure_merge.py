"""Two models joined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench import outputs, saved, step
from micro_models import MODELS, made

from autoopt.model import io
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def test_two_models_become_one(tmp_path: Path) -> None:
    first, second = MODELS["gemm_mlp"](), made("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }", opset=19)
    path = io.save(second, tmp_path / "second")
    result = step(tmp_path, first, "merge", second=str(path))
    assert result["outcome"] == "ok", result["message"]
    joined = saved(result)
    feeds = next(synthetic_feeds(first))
    expected = np.maximum(outputs(first, tmp_path, feeds)[0], 0)
    np.testing.assert_allclose(outputs(joined, tmp_path, feeds)[0], expected, rtol=1e-5)
    assert max(entry.version for entry in joined.opset_import) == 19


def test_models_with_different_types_are_refused(tmp_path: Path) -> None:
    second = made("g (int64[N, 4] x) => (int64[N, 4] y) { y = Neg (x) }")
    path = io.save(second, tmp_path / "second")
    result = step(tmp_path, MODELS["gemm_mlp"](), "merge", second=str(path))
    assert (result["outcome"], "different types" in result["message"]) == ("refused", True)
