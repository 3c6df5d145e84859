"""Convolutions along one axis, computed along the rows of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from bench import compare, ops
from micro_models import made, normal

from autoopt.passes.fusion.conv_rows import ConvToRows

SIGNAL, COLUMN = "float[N, 8, 48]", "float[N, 8, 48, 1]"
KERNEL = {"w": normal(16, 8, 3), "b": normal(16, seed=1)}


def _turned(array: np.ndarray) -> np.ndarray:
    """The kernel of a signal for an image with one column."""
    return array[..., None]


def _signal(body: str, shape: str = SIGNAL, out: str = "float[A, B, C]", **weights: np.ndarray) -> onnx.ModelProto:
    return made(f"g ({shape} x) => ({out} y) {{ {body} }}", **{**KERNEL, **weights})


def _column(body: str, out: str = "float[A, B, C, 1]", **weights: np.ndarray) -> onnx.ModelProto:
    kernels = {name: _turned(array) if array.ndim == 3 else array for name, array in {**KERNEL, **weights}.items()}
    return made(f"g ({COLUMN} x) => ({out} y) {{ {body} }}", **kernels)


def _same(before: onnx.ModelProto, after: onnx.ModelProto, folder: Path, *sizes: int) -> None:
    assert compare(before, after, folder, {"x": normal(*sizes, seed=5)}).status == "same"


@pytest.mark.parametrize(
    ("attributes", "weights"),
    [
        ("pads = [1, 1]", {}),
        ("pads = [0, 2], strides = [2]", {}),
        ("pads = [2, 2], dilations = [2], kernel_shape = [3]", {}),
        ("group = 2, pads = [1, 1]", {"w": normal(32, 16, 3), "b": normal(32)}),
        ("group = 16", {"w": normal(16, 1, 3)}),
        ('auto_pad = "NOTSET"', {}),
    ],
)
def test_signals_are_convolved_as_rows(tmp_path: Path, attributes: str, weights: dict[str, np.ndarray]) -> None:
    groups = {"group = 2": 32, "group = 16": 16}
    channels = next((count for text, count in groups.items() if text in attributes), 8)
    before = _signal(f"y = Conv <{attributes}> (x, w, b)", f"float[N, {channels}, 48]", **weights)
    after = ConvToRows()(before)
    assert ops(after) == ["Reshape", "Conv", "Reshape"]
    _same(before, after, tmp_path, 2, channels, 48)


def test_images_with_one_column_are_turned(tmp_path: Path) -> None:
    before = _column("y = Conv <pads = [2, 0, 1, 0], strides = [2, 1]> (x, w, b)")
    after = ConvToRows()(before)
    assert ops(after) == ["Reshape", "Conv", "Reshape"]
    _same(before, after, tmp_path, 2, 8, 48, 1)


BLOCK = """
    q = Abs (x)
    o = Conv <pads = [PADS]> (q, first)
    p = Pad (o, pads)
    c = Conv (p, w, b)
    n = BatchNormalization (c, b, b, b, var)
    r = LeakyRelu (n)
    m = MaxPool <kernel_shape = [KERNEL], strides = [KERNEL]> (r)
    a = Add (m, m)
    s = Mul (a, two)
    d = Conv (s, v)
    y = Concat <axis = 1> (d, d)
"""
WEIGHTS = {
    "first": normal(8, 8, 3, seed=6),
    "var": np.abs(normal(16, seed=3)),
    "two": np.float32([2]),
    "v": normal(8, 16, 3, seed=4),
}


def test_everything_behind_convolutions_moves_with_them(tmp_path: Path) -> None:
    body = BLOCK.replace("PADS", "1, 0").replace("KERNEL", "2")
    before = _signal(body, pads=np.array([0, 0, 3, 0, 0, 1]), **WEIGHTS)
    after = ConvToRows()(before)
    assert ops(after) == ["Abs", "Reshape", *ops(before)[1:], "Reshape"]
    _same(before, after, tmp_path, 2, 8, 48)
    body = BLOCK.replace("PADS", "1, 0, 0, 0").replace("KERNEL", "2, 1")
    before = _column(body, pads=np.array([0, 0, 3, 0, 0, 0, 1, 0]), **WEIGHTS)
    after = ConvToRows()(before)
    assert ops(after) == ["Abs", "Reshape", *ops(before)[1:], "Reshape"]
    _same(before, after, tmp_path, 2, 8, 48, 1)


def test_values_that_others_read_keep_their_shape(tmp_path: Path) -> None:
    before = _signal("c = Conv (x, w, b)\n z = Flatten (c)\n r = Relu (c)\n y = Conv (r, v)", v=normal(8, 16, 3))
    before.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["P", "Q"]))
    after = ConvToRows()(before)
    assert sorted(ops(after)) == ["Conv", "Conv", "Flatten", "Relu", "Reshape", "Reshape", "Reshape"]
    _same(before, after, tmp_path, 2, 8, 48)


def test_a_value_that_a_body_reads_keeps_its_name(tmp_path: Path) -> None:
    text = """
    c = Conv (x, w, b)
    z = If (yes) <
        then_branch = t () => (float[A, B, C] p) { p = Neg (c) },
        else_branch = e () => (float[A, B, C] q) { q = Abs (c) }
    >
    y = Relu (z)
    """
    before = _signal(text, yes=np.array(True))
    after = ConvToRows()(before)
    assert ops(after) == ["Reshape", "Conv", "Reshape", "If", "Relu"]
    _same(before, after, tmp_path, 2, 8, 48)


def test_long_kernels_get_their_padding_apart_and_keep_it(tmp_path: Path) -> None:
    before = _signal("y = Conv <pads = [15, 16]> (x, w)", w=normal(16, 8, 32))
    after = ConvToRows()(before)
    assert ops(after) == ["Reshape", "Pad", "Conv", "Reshape"]
    _same(before, after, tmp_path, 2, 8, 48)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    onnxruntime.InferenceSession(after.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert "Pad" in ops(onnx.load(tmp_path / "loaded.onnx")), "the runtime folds it into the convolution again"


@pytest.mark.parametrize(
    ("body", "shape", "weights"),
    [
        ("y = Conv <pads = [15, 16]> (x, w)", "float[N, 8, L]", {"w": normal(16, 8, 32)}),
        ("y = Conv <pads = [1, 1]> (x, w)", SIGNAL, {}),
        ("y = Conv <pads = [31, 32]> (x, w)", "float[N, 8, 4]", {"w": normal(16, 8, 64)}),
        ("y = Conv <pads = [15, 16], group = 16> (x, w)", "float[N, 16, 48]", {"w": normal(16, 1, 32)}),
    ],
    ids=["open length", "short kernel", "mostly padding", "depthwise"],
)
def test_other_padding_stays_inside(body: str, shape: str, weights: dict[str, np.ndarray]) -> None:
    assert "Pad" not in ops(ConvToRows()(_signal(body, shape, **weights)))


def test_kernels_are_stored_once() -> None:
    before = _signal(
        "c = Conv <pads = [1, 1]> (x, w)\n r = Relu (c)\n y = Conv <pads = [1, 1]> (r, w)", w=normal(8, 8, 3)
    )
    after = ConvToRows()(before)
    assert sum(tensor.dims[:] == [8, 8, 1, 3] for tensor in after.graph.initializer) == 1
    assert not any(tensor.name == "w" for tensor in after.graph.initializer)


@pytest.mark.parametrize(
    "before",
    [
        _signal("y = Conv (x, w)", w=normal(16, 8, 1)),
        _signal("y = Conv (x, w)", w=normal(5, 8, 3)),
        _signal('y = Conv <auto_pad = "SAME_UPPER"> (x, w, b)'),
        _signal("y = Conv <group = 4> (x, w)", w=normal(16, 2, 3)),
        _column("y = Conv <pads = [0, 1, 0, 1]> (x, w)", "float[A, B, C, D]", w=normal(16, 8, 3)),
        made("g (float[N, 8, 48, 4] x) => (float[A, B, C, D] y) { y = Conv (x, w) }", w=normal(16, 8, 3, 1)),
        made("g (float16[N, 8, 48] x) => (float16[A, B, C] y) { y = Conv (x, w) }", w=normal(16, 8, 3).astype("f2")),
    ],
    ids=["pointwise", "few channels", "automatic padding", "small groups", "padded columns", "images", "float16"],
)
def test_other_convolutions_stay(before: onnx.ModelProto) -> None:
    assert ConvToRows()(before) is before


def test_models_of_old_operator_sets_stay() -> None:
    before = _signal("y = Conv <pads = [15, 16]> (x, w)", w=normal(16, 8, 32))
    before.opset_import[0].version = 10
    assert ConvToRows()(before) is before


def test_nodes_may_come_in_any_order(tmp_path: Path) -> None:
    before = _signal("y = Conv (c, w2)\n c = Conv (x, w, b)", w2=normal(8, 16, 3, seed=2))
    after = ConvToRows()(before)
    assert ops(after) == ["Reshape", "Conv", "Conv", "Reshape"]
    _same(before, after, tmp_path, 2, 8, 48)


def test_kernels_that_callers_give_stay() -> None:
    given = made("g (float[N, 8, 48] x, float[16, 8, 3] w) => (float[N, 16, 46] y) { y = Conv (x, w) }", w=KERNEL["w"])
    assert ops(ConvToRows()(given)) == ["Conv"]
    computed = made("g (float[16, 8, 3] k) => (float[1, 16, 46] y) { y = Conv (w, k) }", w=normal(1, 8, 48))
    assert ops(ConvToRows()(computed)) == ["Conv"]
