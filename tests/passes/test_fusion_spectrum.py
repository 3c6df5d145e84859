"""Short-time Fourier transforms as convolutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import ops, saved, step
from micro_models import made

WINDOW = np.hanning(16).astype(np.float32)


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("g (float[N, M] x) => (float[N, f, 9, 2] y) { y = STFT (x, step, window) }", {"window": WINDOW}),
        ("g (float[N, 64, 1] x) => (float[N, f, 9, 2] y) { y = STFT (x, step, window) }", {"window": WINDOW}),
        (
            "g (float[N, 64] x) => (float[N, f, b, 2] y) { y = STFT <onesided = 0> (x, step, window) }",
            {"window": WINDOW},
        ),
        ("g (float[2, 64] x) => (float[2, f, b, 2] y) { y = STFT (x, step, , size) }", {"size": np.int64(15)}),
    ],
)
def test_a_transform_of_a_real_signal_becomes_a_convolution(tmp_path: Path, text: str, weights: Any) -> None:
    result = step(tmp_path, made(text, step=np.int64(5), **weights), "stft_to_conv")
    assert result["outcome"] == "ok", result["message"]
    assert result["equivalence"]["status"] == "same"
    assert "STFT" not in ops(saved(result))
    assert "Conv" in ops(saved(result))


def test_transforms_of_complex_signals_and_unknown_windows_stay(tmp_path: Path) -> None:
    complex_signal = "g (float[N, 64, 2] x) => (float[N, f, b, 2] y) { y = STFT <onesided = 0> (x, step, window) }"
    unknown = "g (float[N, 64] x, float[16] window) => (float[N, f, b, 2] y) { y = STFT (x, step, window) }"
    models = (made(complex_signal, step=np.int64(5), window=WINDOW), made(unknown, step=np.int64(5)))
    for number, model in enumerate(models):
        assert step(tmp_path / str(number), model, "stft_to_conv")["outcome"] == "unchanged"


def test_transforms_of_float64_stay_because_the_runtime_has_no_such_convolution(tmp_path: Path) -> None:
    text = "g (double[N, 64] x) => (double[N, f, b, 2] y) { y = STFT (x, step, , size) }"
    result = step(tmp_path, made(text, step=np.int64(5), size=np.int64(16)), "stft_to_conv")
    assert result["outcome"] == "unchanged", result["message"]
