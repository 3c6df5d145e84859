"""Sizes that a model suggests for the open dimensions of its inputs."""

from __future__ import annotations

from typing import Any

import builders
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, parser

from autoopt.data.sources import synthetic
from autoopt.data.sources.open_sizes import open_sizes, sides_by_positions, total_stride, with_features
from autoopt.data.sources.synthetic import input_spec
from autoopt.model import io
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


FEATURES, PATCH = 6, 4


def patches(positions: int, *, lookup: bool = False, words: int = 49, stride: int = PATCH) -> onnx.ModelProto:
    """Patches of an image with a vector for each place, beside words with a table of the same form."""
    table = "t = Gather (table, places)\n p = Unsqueeze (t, zero)" if lookup else "p = Identity (table)"
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[n, c, h, w] pixels, int64[n, s] ids) => (float[n, p, {FEATURES}] y, float[n, s, {FEATURES}] z) {{
            f = Conv <strides = [{stride}, {stride}]> (pixels, kernel)
            r = Reshape (f, flat)
            tokens = Transpose <perm = [0, 2, 1]> (r)
            all = Concat <axis = 1> (class, tokens)
            {table}
            y = Add (all, p)
            words = Gather (dictionary, ids)
            z = Add (words, one)
        }}"""
    )
    weights = {
        "kernel": np.ones((FEATURES, 3, PATCH, PATCH), np.float32),
        "class": np.ones((1, 1, FEATURES), np.float32),
        "flat": np.array([0, 0, -1]),
        "zero": np.array([0]),
        "places": np.arange(positions),
        "one": np.ones(1, np.float32),
        "dictionary": np.ones((words, FEATURES), np.float32),
        "table": np.ones((positions, FEATURES), np.float32),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


@pytest.mark.parametrize("lookup", [False, True])
@pytest.mark.parametrize(("positions", "side"), [(10, 12), (9, 12), (11, 12), (26, 20), (8, None)])
def test_the_side_of_an_image_follows_from_the_table_of_positions(
    positions: int, side: int | None, lookup: bool
) -> None:
    expected = {} if side is None else {"pixels": side}
    assert sides_by_positions(patches(positions, lookup=lookup).graph) == expected


def test_overlapping_patches_say_nothing_about_the_side() -> None:
    assert sides_by_positions(patches(10, stride=2).graph) == {}


def test_made_up_images_run_in_a_vision_transformer_with_open_sizes(tmp_path) -> None:
    path = str(io.save(patches(10), tmp_path))
    data = synthetic.load(path, items=1)
    feeds = {name: arrays[0] for name, arrays in data.uneven.items()}
    assert feeds["pixels"].shape == (1, 3, 12, 12)
    onnxruntime.InferenceSession(path).run(None, feeds)
    assert "images of 12x12 (its table of positions)" in synthetic.assumed_sizes(path, data.uneven)


def test_channels_count_all_groups() -> None:
    proto = builders.model(
        [helper.make_node("Conv", ["x", "w"], ["y"], group=2)],
        [builders.tensor("x", ["n", "c", "h", "w"])],
        [builders.tensor("y", None)],
        {"w": np.ones((4, 2, 3, 3), np.float32)},
    )
    (spec,) = with_features(proto.graph, [synthetic.input_spec(proto.graph.input[0])])
    assert spec.shape == ("n", 4, "h", "w")
    assert open_sizes(proto, [spec], input_roles([spec]))["x"].by_axis == {2: 224, 3: 224}


@pytest.mark.parametrize(
    ("node", "weights"),
    [
        (helper.make_node("MatMul", ["rows", "w"], ["y"]), {"w": np.ones((7, 3), np.float32)}),
        (
            helper.make_node("GRU", ["rows", "w", "r"], ["y"], hidden_size=2),
            {"w": np.ones((1, 6, 7), np.float32), "r": np.ones((1, 6, 2), np.float32)},
        ),
    ],
    ids=["MatMul", "GRU"],
)
def test_open_features_are_those_of_the_weights_that_read_them(node, weights, tmp_path) -> None:
    proto = builders.model(
        [helper.make_node("Unsqueeze", ["x", "axes"], ["rows"]), node],
        [builders.tensor("x", ["frames", "features"])],
        [builders.tensor("y", None)],
        {**weights, "axes": np.array([1])},
    )
    path = str(io.save(proto, tmp_path))
    assert synthetic.load(path, items=1).uneven["x"][0].shape == (1, 7)


def test_a_model_that_needs_many_rows_gets_them(tmp_path) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["frames", "axes"], ["image"]),
        helper.make_node("MaxPool", ["image"], ["y"], kernel_shape=[40, 3]),
    ]
    frames, weights = builders.tensor("frames", ["n", "bands"]), {"axes": np.array([0, 1])}
    path = str(io.save(builders.model(nodes, [frames], [builders.tensor("y", None)], weights), tmp_path))
    assert synthetic.load(path, items=1).uneven["frames"][0].shape == (64, 64)
