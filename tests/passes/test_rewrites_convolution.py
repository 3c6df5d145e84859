"""Constant scales and shifts folded into convolutions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import compare, ops
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import made, normal

from autoopt.passes.fusion.rule_passes import ConvAffineFolding

IN, OUT, SIZE = 4, 6, 5


def convolution(rank: int, body: str, group: int = 1, **weights: np.ndarray) -> onnx.ModelProto:
    """A model with a convolution over `rank` axes in `body`, which turns `x` to `y` with the weights `w`."""
    shape = ", ".join(["N", str(IN), *[str(SIZE)] * rank])
    result = ", ".join(["N", str(OUT), *"ABC"[:rank]])
    kernel = normal(OUT, IN // group, *[3] * rank, seed=7)
    return made(f"g (float[{shape}] x) => (float[{result}] y) {{ {body} }}", w=kernel, **weights)


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    return ConvAffineFolding()(model)


@settings(max_examples=40)
@given(
    side=st.sampled_from(["before", "after"]),
    operator=st.sampled_from(["Mul", "Add"]),
    rank=st.integers(1, 2),
    group=st.sampled_from([1, 2]),
    whole=st.booleans(),
    bias=st.booleans(),
    flipped=st.booleans(),
)
def test_scales_and_shifts_are_folded_without_changing_results(
    tmp_path: Path, side: str, operator: str, rank: int, group: int, whole: bool, bias: bool, flipped: bool
) -> None:
    channels = IN if side == "before" else OUT
    constant = normal(1, 1 if whole else channels, *[1] * rank)
    weights = {"c": constant}
    arguments = "w"
    if bias:
        weights["b"] = normal(OUT)
        arguments = "w, b"
    # Zeros around the input would not be shifted, so that only scales are folded before padding.
    pads = "" if (side, operator) == ("before", "Add") else f", pads = [{', '.join(['1'] * 2 * rank)}]"
    attributes = f"<group = {group}{pads}>"
    if side == "before":
        terms = "c, x" if flipped else "x, c"
        body = f"h = {operator} ({terms})\n y = Conv {attributes} (h, {arguments})"
    else:
        terms = "c, h" if flipped else "h, c"
        body = f"h = Conv {attributes} (x, {arguments})\n y = {operator} ({terms})"
    model = convolution(rank, body, group, **weights)
    after = fold(model)
    assert ops(after) == ["Conv"]
    assert compare(model, after, tmp_path).status == "same"


def test_a_chain_of_scales_and_shifts_becomes_one_convolution(tmp_path: Path) -> None:
    body = "a = Mul (x, s)\n b = Add (a, t)\n c = Conv (b, w)\n d = Mul (c, u)\n y = Add (d, v)"
    constants = {"s": normal(IN, 1, 1), "t": normal(IN, 1, 1), "u": normal(OUT, 1, 1), "v": np.float32(0.5)}
    model = convolution(2, body, **constants)
    after = fold(model)
    assert ops(after) == ["Conv"]
    assert compare(model, after, tmp_path).status == "same"


STAYS: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "a shift before padding": ("h = Add (x, c)\n y = Conv <pads = [0, 0, 0, 1]> (h, w)", {"c": normal(IN, 1, 1)}),
    "a shift before automatic padding": (
        "h = Add (x, c)\n y = Conv <auto_pad = \"SAME_UPPER\"> (h, w)",
        {"c": normal(IN, 1, 1)},
    ),
    "a constant that varies over the image": ("h = Conv (x, w)\n y = Mul (h, c)", {"c": normal(3, 3)}),
    "a constant that varies over the batch": ("h = Conv (x, w)\n y = Mul (h, c)", {"c": normal(2, OUT, 1, 1)}),
    "a constant of more axes": ("h = Conv (x, w)\n k = Mul (h, c)\n y = Squeeze (k, axis)",
                                {"c": normal(1, 1, OUT, 1, 1), "axis": np.array([0])}),
    "a scale that overflows": ("h = Conv (x, w)\n y = Mul (h, c)", {"c": np.float32(3e38)}),
    "a result that others read": ("h = Conv (x, w)\n k = Mul (h, c)\n y = Add (k, h)", {"c": normal(OUT, 1, 1)}),
    "a scale that is computed": ("s = ReduceMax <keepdims = 1> (x)\n h = Conv (x, w)\n y = Mul (h, s)", {}),
}  # fmt: skip


@pytest.mark.parametrize("why", STAYS)
def test_what_would_change_results_is_not_folded(why: str) -> None:
    body, constants = STAYS[why]
    model = convolution(2, body, **constants)
    assert ops(fold(model)) == ops(model)


@pytest.mark.parametrize("name", ["w", "c", "b"])
def test_constants_that_callers_may_replace_are_not_folded(name: str) -> None:
    body = "h = Conv (x, w, b)\n y = Mul (h, c)"
    model = convolution(2, body, c=normal(OUT, 1, 1), b=normal(OUT))
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    model.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    assert ops(fold(model)) == ["Conv", "Mul"]
