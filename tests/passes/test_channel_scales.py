"""Layers, their channels, and factors between them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from micro_models import branches_of_outer_weights, made, normal

from autoopt.passes.quantize.channel_scales import LARGEST_EXPONENT, ChannelAxes, Layers, powers_of_two


@given(hnp.arrays(np.float64, st.integers(0, 20), elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_powers_of_two_are_the_nearest_ones_within_bounds(factors: np.ndarray) -> None:
    powers = powers_of_two(factors)
    exponents = np.log2(powers)
    assert (exponents == np.round(exponents)).all()
    assert (np.abs(exponents) <= LARGEST_EXPONENT).all()
    usable = np.isfinite(factors) & (factors > 0)
    assert (powers[~usable] == 1).all()
    inside = usable & (factors > 2.0**-LARGEST_EXPONENT) & (factors < 2.0**LARGEST_EXPONENT)
    assert (np.abs(np.log2(factors[inside] / powers[inside])) <= 0.5 + 1e-9).all()


LAYERS: dict[str, tuple[str, tuple[int, ...], ChannelAxes | None]] = {
    "convolution": ("Conv (x, w)", (4, 4, 1, 1), ChannelAxes(1, 0)),
    "depthwise convolution": ("Conv <group = 4> (x, w)", (4, 1, 3, 3), ChannelAxes(0, 0)),
    "grouped convolution": ("Conv <group = 2> (x, w)", (4, 2, 1, 1), ChannelAxes(None, 0)),
    "product": ("MatMul (x, w)", (4, 5), ChannelAxes(0, 1)),
    "product of stacks": ("MatMul (x, w)", (2, 4, 5), None),
    "gemm": ("Gemm (x, w)", (4, 5), ChannelAxes(0, 1)),
    "transposed gemm": ("Gemm <transB = 1> (x, w)", (5, 4), ChannelAxes(1, 0)),
    "gemm of a transposed input": ("Gemm <transA = 1> (x, w)", (4, 5), None),
    "another operator": ("Mul (x, w)", (4, 4), None),
}


def layer(name: str) -> tuple[Layers, onnx.NodeProto]:
    """One node of `LAYERS` in a model, whose shapes do not matter."""
    text, shape, _ = LAYERS[name]
    layers = Layers(made(f"g (float[N] x) => (float[M] y) {{ y = {text} }}", w=normal(*shape)))
    return layers, layers.graph.node[0]


@pytest.mark.parametrize("name", LAYERS)
def test_channels_lie_along_the_axes_of_the_operator(name: str) -> None:
    layers, node = layer(name)
    axes = LAYERS[name][2]
    assert layers.axes(node) == axes
    weight = layers.weight("w")
    assert weight is not None
    for channels, axis in (
        (layers.input_ranges(node), None if axes is None else axes.inputs),
        (layers.output_ranges(node), None if axes is None else axes.outputs),
    ):
        if axis is None:
            assert channels is None
        else:
            assert channels.tolist() == [np.abs(part).max() for part in np.moveaxis(weight, axis, 0)]


@pytest.mark.parametrize("name", [name for name, (_, _, axes) in LAYERS.items() if axes and axes.inputs is not None])
def test_powers_of_two_scale_channels_without_rounding(name: str) -> None:
    layers, node = layer(name)
    before = layers.weight("w")
    inputs, outputs = layers.input_ranges(node), layers.output_ranges(node)
    assert before is not None
    assert inputs is not None
    up, down = 2.0 ** np.arange(inputs.size), 2.0 ** -np.arange(outputs.size)
    layers.scale_inputs(node, up)
    scaled = layers.input_ranges(node)
    assert scaled.tolist() == (inputs * up).tolist()
    layers.scale_inputs(node, 1 / up)
    layers.scale_outputs(node, down)
    scaled = layers.output_ranges(node)
    assert scaled.tolist() == (outputs * down).tolist()
    layers.scale_outputs(node, 1 / down)
    np.testing.assert_array_equal(layers.weight("w"), before)


def test_weights_of_others_types_and_readers_are_left() -> None:
    model = made(
        "g (float[2, 4] x, float[4, 4] given) => (float[2, 4] y)"
        "{ a = MatMul (x, twice)\n b = MatMul (a, twice)\n c = MatMul (b, given)\n d = MatMul (c, own)\n"
        "  h = Cast <to = 10> (d)\n k = MatMul (h, half)\n y = Cast <to = 1> (k) }",
        twice=normal(4, 4),
        given=normal(4, 4),
        own=normal(4, 4),
        half=normal(4, 4, dtype=np.float16),
    )
    layers = Layers(model)
    assert [name for name in ("twice", "given", "own", "half", "x", "nowhere") if layers.weight(name) is not None] == [
        "own"
    ]


def test_a_value_has_one_consumer_if_one_node_alone_reads_it_once() -> None:
    model = made(
        "g (float[4] x) => (float[4] y, float[4] shown)"
        "{ a = Relu (x)\n b = Neg (a)\n c = Mul (b, b)\n shown = Abs (c)\n y = Add (shown, x) }"
    )
    layers = Layers(model)
    consumers = {name: layers.only_consumer(name) for name in ("x", "a", "b", "c", "shown", "y")}
    assert {name: node.op_type for name, node in consumers.items() if node is not None} == {"a": "Neg", "c": "Abs"}


def test_values_that_bodies_read_are_not_local() -> None:
    layers = Layers(branches_of_outer_weights())
    assert not layers.is_local("x")
    assert layers.weight("w") is None
    assert layers.is_local("nowhere")


def test_nodes_are_inserted_behind_others() -> None:
    layers = Layers(made("g (float[4] x) => (float[4] y) { a = Relu (x)\n y = Neg (a) }"))
    node = onnx.helper.make_node
    layers.insert({-1: [node("Abs", ["x"], ["front"])], 0: [node("Exp", ["a"], ["e"]), node("Log", ["a"], ["l"])]})
    assert [node.op_type for node in layers.graph.node] == ["Abs", "Relu", "Exp", "Log", "Neg"]
