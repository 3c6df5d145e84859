"""Transposed convolutions as convolutions."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from bench import compare, ops
from micro_models import made, normal

from autoopt.passes.fusion.rule_passes import ConvTransposeToConv


def _model(attributes: str, size: tuple[int, int] = (4, 4), inputs: str = "x, w, b") -> onnx.ModelProto:
    text = f"g (float[N, 3, H, W] x) => (float[A, B, C, D] y) {{ y = ConvTranspose <{attributes}> ({inputs}) }}"
    return made(text, w=normal(3, 5, *size), b=normal(5, seed=1))


@pytest.mark.parametrize(
    ("attributes", "size", "inputs", "parts"),
    [
        ("strides = [2, 2], pads = [1, 1, 1, 1]", (4, 4), "x, w, b", 4),
        ('strides = [2, 2], pads = [1, 1, 1, 1], auto_pad = "NOTSET"', (4, 4), "x, w", 4),
        ("strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]", (3, 3), "x, w, b", 4),
        ("strides = [2, 2], pads = [0, 2, 1, 1]", (3, 5), "x, w, b", 4),
        ("strides = [3, 3], pads = [1, 2, 1, 0]", (5, 5), "x, w, b", 9),
        ("pads = [1, 1, 1, 1]", (3, 3), "x, w, b", 1),
    ],
)
def test_overlapping_kernels_become_convolutions(
    tmp_path: Path, attributes: str, size: tuple[int, int], inputs: str, parts: int
) -> None:
    model = _model(attributes, size, inputs)
    after = ConvTransposeToConv()(model)
    joined = ["Concat", "DepthToSpace"] if parts > 1 else []
    assert ops(after) == ["Conv"] * parts + joined
    feeds = {"x": normal(2, 3, 5, 7, seed=2)}
    assert compare(model, after, tmp_path, feeds).status == "same"


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ("strides = [2, 2]", (2, 2)),
        ("strides = [2, 2]", (4, 4)),
        ("strides = [2, 2], pads = [2, 2, 0, 0], output_padding = [1, 1]", (3, 3)),
        ("strides = [2, 1], pads = [1, 1, 1, 1]", (4, 3)),
        ("strides = [2, 2], pads = [1, 1, 1, 1], group = 3", (4, 4)),
        ("strides = [2, 2], pads = [2, 2, 2, 2], dilations = [2, 2]", (4, 4)),
        ('strides = [2, 2], auto_pad = "SAME_UPPER"', (4, 4)),
    ],
)
def test_other_layers_stay(attributes: str, size: tuple[int, int]) -> None:
    model = _model(attributes, size)
    assert ConvTransposeToConv()(model) is model
