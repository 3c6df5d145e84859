"""Layers computed by others: convolutions with scales folded in, transforms, fused layers split again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import assert_alike, compare, ops, outputs, saved, step
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import made, normal

from autoopt.model import io
from autoopt.model.session import write_optimized
from autoopt.passes.fusion.rule_passes import ConvAffineFolding, ConvTransposeToConv, SplitFusedLayers
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds

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


def transposed(attributes: str, size: tuple[int, int] = (4, 4), inputs: str = "x, w, b") -> onnx.ModelProto:
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
    model = transposed(attributes, size, inputs)
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
    model = transposed(attributes, size)
    assert ConvTransposeToConv()(model) is model


def chain_of_layers(activation: str) -> onnx.ModelProto:
    return made(
        f"g (float[2, 3, 8, 8] x) => (float[2, 4, 6, 6] y){{ a = Conv (x, w, b)\n y = {activation} }}",
        w=normal(4, 3, 3, 3),
        b=normal(4),
        low=np.float32(-0.2),
        high=np.float32(0.3),
    )


def optimized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The model as onnxruntime saves it with fused operators."""
    target = folder / "optimized.onnx"
    write_optimized(io.save(model, folder / "plain"), target, {"graph_optimization_level": "extended"})
    return onnx.load(target)


@pytest.mark.parametrize(
    ("activation", "kind"),
    [
        ("Relu (a)", "Relu"),
        ("LeakyRelu <alpha = 0.3> (a)", "LeakyRelu"),
        ("HardSigmoid <alpha = 0.3, beta = 0.4> (a)", "HardSigmoid"),
        ("Clip (a, low, high)", "Clip"),
    ],
)
def test_layers_with_activations_are_split(activation: str, kind: str, tmp_path: Path) -> None:
    source = chain_of_layers(activation)
    fused = optimized(source, tmp_path)
    assert "FusedConv" in ops(fused)
    feeds = next(synthetic_feeds(source))
    expected = outputs(fused, tmp_path, feeds)[0]
    result = step(tmp_path, fused, "split_fused_layers")
    assert result["outcome"] == "ok", result["message"]
    assert ops(saved(result))[:2] == ["Conv", kind]
    np.testing.assert_allclose(outputs(saved(result), tmp_path, feeds)[0], expected, atol=1e-6)


def test_a_sum_inside_a_convolution_is_an_addition(tmp_path: Path) -> None:
    model = made(
        "g (float[1, 3, 8, 8] x, float[1, 4, 6, 6] z) => (float[1, 4, 6, 6] y)"
        '{ y = com.microsoft.FusedConv <activation = "Relu"> (x, w, b, z) }',
        domains=', "com.microsoft": 1',
        w=normal(4, 3, 3, 3),
        b=normal(4),
    )
    feeds = {"x": normal(1, 3, 8, 8), "z": normal(1, 4, 6, 6)}
    after = SplitFusedLayers()(model)
    assert ops(after) == ["Conv", "Add", "Relu"]
    assert_alike(model, after, tmp_path, feeds, atol=1e-5)


def test_dense_layers_are_split(tmp_path: Path) -> None:
    model = made(
        "g (float[2, 8] x) => (float[2, 6] y)"
        '{ y = com.microsoft.FusedGemm <activation = "LeakyRelu", activation_alpha = 0.2, transB = 1> (x, w, b) }',
        domains=', "com.microsoft": 1',
        w=normal(6, 8),
        b=normal(6),
    )
    feeds = {"x": normal(2, 8)}
    after = SplitFusedLayers()(model)
    assert ops(after) == ["Gemm", "LeakyRelu"]
    assert_alike(model, after, tmp_path, feeds, atol=1e-6)


@pytest.mark.parametrize(
    ("product", "kinds"),
    [
        ("<alpha = 0.5> (x, w)", ["MatMul", "Mul"]),
        ("<transB = 1> (x, w)", ["MatMul"]),
        ("<transA = 1, alpha = 2.0> (x, w)", ["Transpose", "MatMul", "Mul"]),
    ],
)
def test_factors_and_transpositions_are_operators_of_their_own(product: str, kinds: list[str], tmp_path: Path) -> None:
    model = made(
        f"g (float[2, 4, 4] x) => (float[2, 4, 4] y) {{ y = com.microsoft.FusedMatMul {product} }}",
        domains=', "com.microsoft": 1',
        w=normal(4, 4),
    )
    feeds = {"x": normal(2, 4, 4)}
    after = SplitFusedLayers()(model)
    assert ops(after) == kinds
    assert_alike(model, after, tmp_path, feeds, atol=1e-5)


def test_a_value_of_unknown_rank_is_not_transposed() -> None:
    model = made(
        "g (float[2, 4] x, int64[k] shape) => (float y)"
        "{ r = Reshape (x, shape)\n y = com.microsoft.FusedMatMul <transA = 1> (r, w) }",
        domains=', "com.microsoft": 1',
        w=normal(4, 4),
    )
    assert SplitFusedLayers()(model) is model
