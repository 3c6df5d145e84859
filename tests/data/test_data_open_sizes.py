"""Sizes that a model suggests for the open dimensions of its inputs."""

from __future__ import annotations

from typing import Any

import builders
import numpy as np
import pytest
from onnx import helper

from autoopt.data.sources.open_sizes import open_sizes, total_stride
from autoopt.data.sources.synthetic import input_spec
from autoopt.model.roles import input_roles


def convolutions(*strides: list[int], shape: Any = ("n", 3, "h", "w"), rank: int = 4, **metadata: str) -> Any:
    """Convolutions one after the other, behind them a global pool if the output has two dimensions."""
    nodes, value = [], "x"
    for number, stride in enumerate(strides):
        nodes.append(helper.make_node("Conv", [value, "w"], [f"c{number}"], strides=stride))
        value = f"c{number}"
    nodes.append(helper.make_node("Identity", [value], ["y"]))
    weights = {"w": np.ones((3, 3, 1, 1), np.float32)}
    proto = builders.model(nodes, [builders.tensor("x", shape)], [builders.tensor("y", [None] * rank)], weights)
    helper.set_model_props(proto, metadata)
    return proto


def sizes(proto: Any) -> dict[int, int]:
    specs = list(map(input_spec, proto.graph.input))
    found = open_sizes(proto, specs, input_roles(specs))
    return dict(found["x"].by_axis) if found else {}


DOWN = ([2, 2], [2, 2], [2, 2])


@pytest.mark.parametrize(
    ("proto", "expected"),
    [
        (convolutions(*DOWN), {2: 640, 3: 640}),
        (convolutions(*DOWN, rank=2), {2: 224, 3: 224}),
        (convolutions([1, 1]), {2: 224, 3: 224}),
        (convolutions([2, 1], [2, 2], rank=2), {2: 48, 3: 320}),
        (convolutions(*DOWN, shape=("n", 1, 32, "w")), {3: 320}),
        (convolutions(*DOWN, shape=("n", 3, "h", 608)), {2: 608}),
        (convolutions(*DOWN, shape=("n", "h", "w", 3)), {1: 640, 2: 640}),
        (convolutions(*DOWN, shape=("n", 3, 64, 64)), {}),
        (convolutions(*DOWN, shape=("n", 7, "h", "w")), {}),
        (convolutions(shape=("n", 1, "past", 64)), {}),
        (convolutions(shape=("n", 2, "past", 4)), {}),
        (convolutions(*DOWN, imgsz="[96, 128]"), {2: 96, 3: 128}),
        (convolutions(*DOWN, imgsz="416"), {2: 416, 3: 416}),
        (convolutions(*DOWN, imgsz="unknown"), {2: 640, 3: 640}),
        (convolutions(*DOWN, imgsz="[0, 320]"), {2: 640, 3: 640}),
        (convolutions(*DOWN, imgsz="[1000000, 1000000]"), {2: 640, 3: 640}),
        (convolutions(*DOWN, imgsz="9" * 5000), {2: 640, 3: 640}),
    ],
)
def test_metadata_come_before_fixed_sides_and_strides(proto: Any, expected: dict[int, int]) -> None:
    assert sizes(proto) == expected


def test_a_resize_does_not_add_to_the_stride() -> None:
    proto = convolutions([2, 2], [2, 2])
    proto.graph.node.extend(
        [
            helper.make_node("Resize", ["c1", "", "scales"], ["up"]),
            helper.make_node("Concat", ["up", "c0"], ["joined"], axis=1),
            helper.make_node("MaxPool", ["joined"], ["down"], kernel_shape=[2, 2], strides=[2, 2]),
        ]
    )
    assert total_stride(proto.graph) == (4, 4)
