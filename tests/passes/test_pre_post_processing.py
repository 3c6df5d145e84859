"""Work before and after the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import outputs, saved, step
from micro_models import MODELS, made

from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_raw_images_become_the_input(tmp_path: Path, layout: str) -> None:
    model = MODELS["image_in"]()
    result = step(
        tmp_path, model, "prepend_preprocessing", image_layout=layout, mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4]
    )
    assert result["outcome"] == "ok", result["message"]
    raw = np.random.default_rng(0).integers(0, 256, (1, 3, 8, 8), np.uint8)
    mean, std = np.float32([0.5, 0.4, 0.3]).reshape(3, 1, 1), np.float32([0.2, 0.3, 0.4]).reshape(3, 1, 1)
    expected = outputs(model, tmp_path, {"image": (raw.astype(np.float32) / 255 - mean) / std})[0]
    given = np.ascontiguousarray(raw.transpose(0, 2, 3, 1)) if layout == "NHWC" else raw
    np.testing.assert_allclose(outputs(saved(result), tmp_path, {"image": given})[0], expected, rtol=1e-4, atol=1e-5)


def test_inputs_that_are_not_images_are_refused(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "prepend_preprocessing")["outcome"] == "refused"
    result = step(tmp_path, MODELS["image_in"](), "prepend_preprocessing", input="imag")
    assert "did you mean 'image'" in result["message"]


def test_an_image_that_is_an_output_too_is_refused(tmp_path: Path) -> None:
    graph = "g (float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] x, float[1, 3, 4, 4] y) { y = Relu (x) }"
    result = step(tmp_path, made(graph), "prepend_preprocessing")
    assert result["outcome"] == "refused", result
    assert "input 'x' is an output, too" in result["message"]


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "argmax"])
def test_postprocessing_becomes_part_of_the_graph(tmp_path: Path, kind: str) -> None:
    model = MODELS["gemm_mlp"]()
    feeds = next(synthetic_feeds(model))
    raw = outputs(model, tmp_path, feeds)[0]
    result = step(tmp_path, model, "append_postprocessing", kind=kind)
    assert result["outcome"] == "ok", result["message"]
    exp = np.exp(raw - raw.max(-1, keepdims=True))
    expected = {
        "softmax": exp / exp.sum(-1, keepdims=True),
        "sigmoid": 1 / (1 + np.exp(-raw)),
        "argmax": raw.argmax(-1),
    }[kind]
    np.testing.assert_allclose(outputs(saved(result), tmp_path, feeds)[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        "g (int64[2, 4] x) => (int64[2, 4] y) { y = Neg (x) }",
        "g (float[2, 4] x) => (seq(float[1, 4]) y) { y = SplitToSequence <axis = 0> (x) }",
    ],
    ids=["integers", "a sequence"],
)
def test_an_output_that_is_no_float_tensor_is_refused(tmp_path: Path, graph: str) -> None:
    result = step(tmp_path, made(graph), "append_postprocessing")
    assert result["outcome"] == "refused", result
    assert "output 'y' is not a float tensor" in result["message"]
