"""Small models after public bug reports of exporters, simplifiers, converters and quantizers.

Each pass either gives a model that computes the same, which the checks after it show, or leaves it; none fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import pytest
from bench import ops, step, steps
from micro_models import MODELS, made, normal

from autoopt.passes.fusion.rule_passes import BatchNormFolding

SIMPLIFIERS: Final = ("simplify", "onnxslim", "onnxsim", "onnxoptimizer", "onnxscript_optimize", "constant_folding")
QUANTIZERS: Final = ("dynamic_quantization", "static_quantization")
STATIC: Final = ("name_fix", "ir_upgrade", "quant_pre_process")
REQUIRED: Final = {"static_quantization": STATIC, "selective_quantization": (*STATIC, "layer_sensitivity")}


class Report(NamedTuple):
    """A model in onnx's text form, its weights, and the passes that had trouble with such a model elsewhere."""

    text: str
    weights: dict[str, Any] = {}
    passes: tuple[str, ...] = (*SIMPLIFIERS, "ort_graph_optimization")
    opset: int = 17


REPORTS: Final = {
    "torch.clamp without min": Report(
        "g (float[n, 4] x) => (float[n, 4] y) { y = Clip (x, , m) }", {"m": np.float32(1)}
    ),
    "Resize by sizes with omitted roi and scales": Report(
        """g (float[1, 2, 4, 4] x) => (float[1, 2, 8, 8] y) { h = Conv <pads = [1, 1, 1, 1]> (x, w)
            y = Resize <mode = "nearest"> (h, , , s) }""",
        {"w": normal(2, 2, 3, 3), "s": np.int64([1, 2, 8, 8])},
        (*SIMPLIFIERS, *QUANTIZERS, "float16"),
    ),
    "Resize with empty roi and scales": Report(
        'g (float[1, 2, 4, 4] x) => (float[1, 2, 8, 8] y) { y = Resize <mode = "nearest"> (x, e, e, s) }',
        {"e": np.zeros(0, np.float32), "s": np.int64([1, 2, 8, 8])},
    ),
    "a Pad that two convolutions read": Report(
        """g (float[1, 2, 6, 6] x) => (float[1, 2, 8, 8] y, float[1, 2, 6, 6] z) {
            p = Pad (x, a)\n y = Conv (p, v)\n z = Conv (p, w) }""",
        {"a": np.int64([0, 0, 2, 2, 0, 0, 2, 2]), "v": normal(2, 2, 3, 3), "w": normal(2, 2, 5, 5)},
        (*SIMPLIFIERS, "pad_folding", "rewrite_rules"),
    ),
    "consecutive Squeezes at the end": Report(
        "g (float[1, 1, 3, 1] x) => (float[3] y) { a = Squeeze (x, m)\n y = Squeeze (a, n) }",
        {"m": np.int64([-1]), "n": np.int64([0, 1])},
    ),
    "a Slice of a Shape with negative bounds": Report(
        """g (float[a, b, c] x) => (float[a, d] y) {
            s = Shape (x)\n t = Slice (s, i, j)\n p = ReduceProd <keepdims = 1> (t)
            r = Concat <axis = 0> (z, p)\n y = Reshape (x, r) }""",
        {"i": np.int64([-2]), "j": np.int64([9223372036854775807]), "z": np.int64([0])},
    ),
    "Slices one after the other with other steps": Report(
        "g (float[8, 4] x) => (float[2, 4] y) { a = Slice (x, s, e, d, t)\n y = Slice (a, s, f, d, t) }",
        {"s": np.int64([0]), "e": np.int64([8]), "f": np.int64([4]), "d": np.int64([0]), "t": np.int64([2])},
    ),
    "a Gemm whose product others read": Report(
        "g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) { h = MatMul (x, w)\n y = Add (h, b)\n z = Relu (h) }",
        {"w": normal(4, 4), "b": normal(4)},
        (*SIMPLIFIERS, "matmul_add_gemm", *QUANTIZERS),
    ),
    "a bias in front of the product": Report(
        "g (float[n, 3, 4] x) => (float[n, 3, 4] y) { h = MatMul (x, w)\n y = Add (b, h) }",
        {"w": normal(4, 4), "b": normal(3, 1)},
        (*SIMPLIFIERS, "matmul_add_gemm", *QUANTIZERS),
    ),
    "Softmax before opset 13 joins axes": Report(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax <axis = 1> (x) }",
        passes=("opset_conversion", "onnxslim", "float16", "ort_graph_optimization"),
        opset=11,
    ),
    "Upsample of old exporters": Report(
        'g (float[1, 2, 4, 4] x) => (float[1, 2, 8, 8] y) { y = Upsample <mode = "linear"> (x, s) }',
        {"s": np.float32([1, 1, 2, 2])},
        ("opset_conversion", "onnxsim", "quant_pre_process"),
        9,
    ),
    "normalization with the outputs of training": Report(
        """g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) {
            h = Conv <pads = [1, 1, 1, 1]> (x, w)\n y, m1, v1, m2, v2 = BatchNormalization (h, s, b, m, v) }""",
        {"w": normal(3, 3, 3, 3), "s": normal(3), "b": normal(3), "m": normal(3), "v": np.float32([1, 2, 3])},
        ("batchnorm_folding", "rewrite_rules", "opset_conversion"),
        9,
    ),
    "Split without sizes": Report(
        "g (float[n, 6] x) => (float[n, 2] y) { a, b, c = Split <axis = 1> (x)\n d = Add (a, b)\n y = Mul (d, c) }",
        passes=("opset_conversion", *SIMPLIFIERS),
        opset=13,
    ),
    "Dropout with its mask as an output": Report(
        "g (float[n, 4] x) => (float[n, 4] y, bool[n, 4] z) { d, z = Dropout (x)\n y = Relu (d) }"
    ),
    "an LSTM without states and lengths": Report(
        """g (float[s, n, 4] x) => (float[s, 1, n, 3] y) {
            y, h, c = LSTM <hidden_size = 3> (x, w, r, b) }""",
        {"w": normal(1, 12, 4), "r": normal(1, 12, 3), "b": normal(1, 24)},
        (*SIMPLIFIERS, *QUANTIZERS, "float16"),
    ),
    "an LSTM with a state and no bias": Report(
        """g (float[s, 1, 4] x, float[1, 1, 3] h0, float[1, 1, 3] c0) => (float[s, 1, 1, 3] y, float[1, 1, 3] h) {
            y, h, c = LSTM <hidden_size = 3> (x, w, r, , , h0, c0) }""",
        {"w": normal(1, 12, 4), "r": normal(1, 12, 3)},
        (*SIMPLIFIERS, *QUANTIZERS, "float16"),
    ),
    "detections that may be none": Report(
        """g (float[1, 5, 4] x, float[1, 1, 5] s) => (float[k, 4] y) {
            i = NonMaxSuppression (x, s, m, t, c)\n j = Gather <axis = 1> (i, two)\n b = Squeeze (x, zero)
            y = Gather <axis = 0> (b, j) }""",
        {"m": np.int64([3]), "t": np.float32([0.5]), "c": np.float32([0.9]), "two": np.int64(2), "zero": np.int64([0])},
    ),
    "a decoder with and without its cache in two branches": Report(
        """g (float[1, t, 4] x, float[1, p, 4] past, bool use) => (float[1, t, 4] y, float[1, q, 4] present) {
            k = MatMul (x, w)
            present = If (use) <
                then_branch = a () => (float[1, q, 4] k1) { k1 = Concat <axis = 1> (past, k) },
                else_branch = b () => (float[1, q, 4] k2) { k2 = Identity (k) }>
            kt = Transpose <perm = [0, 2, 1]> (present)
            s = MatMul (x, kt)\n p = Softmax <axis = -1> (s)\n y = MatMul (p, present) }""",
        {"w": normal(4, 4)},
        (
            "simplify",
            "onnxslim",
            "onnxsim",
            "onnxscript_optimize",
            "dynamic_quantization",
            "float16",
            "identity_elimination",
        ),
    ),
    "weights in Constant nodes": Report(
        """g (float[n, 4] x) => (float[n, 2] y) {
            w = Constant <value = float[4, 2] {1, 2, 3, 4, 5, 6, 7, 8}> ()\n y = MatMul (x, w) }""",
        passes=("external_data", "lift_constants", *QUANTIZERS, "float16", "weight_only_quantization"),
    ),
    "text beside numbers": Report(
        "g (string[n] t, float[n, 4] x) => (string[n] u, float[n, 4] y) { u = Identity (t)\n y = MatMul (x, w) }",
        {"w": normal(4, 4)},
        (*SIMPLIFIERS, "dynamic_quantization", "float16"),
    ),
    "an output that is an input and another that is a weight": Report(
        "g (float[n, 4] x) => (float[n, 4] y, float[4] w, float[n, 4] z) { y = Identity (x)\n z = Add (x, w) }",
        {"w": normal(4)},
        (*SIMPLIFIERS, "identity_elimination", "name_fix"),
    ),
    "a convolution with its padding by name": Report(
        """g (float[1, 2, 7, 7] x) => (float[1, 2, 4, 4] y) {
            y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w, b) }""",
        {"w": normal(2, 2, 3, 3), "b": normal(2)},
        (*SIMPLIFIERS, *QUANTIZERS, "float16", "quant_pre_process"),
    ),
    "an operator that adds what it scatters": Report(
        'g (float[4] x) => (float[4] y) { y = ScatterElements <axis = 0, reduction = "add"> (x, i, u) }',
        {"i": np.int64([1, 1, 3]), "u": normal(3)},
        ("float16",),
    ),
    "quantization at run time, which float16 cannot begin with": Report(
        """g (float[n, 4] x) => (uint8[n, 4] q) { h = MatMul (x, w)
            q, s, z = DynamicQuantizeLinear (h) }""",
        {"w": normal(4, 4)},
        ("float16",),
    ),
    "an operator that tells infinities, for float32 only": Report(
        "g (float[n, 4] x) => (bool[n, 4] y) { h = MatMul (x, w)\n y = IsInf (h) }", {"w": normal(4, 4)}, ("float16",)
    ),
    "a sequence inside": Report(
        """g (float[4, 3] x) => (float[a, b] y) { h = MatMul (x, w)\n s = SplitToSequence <axis = 0> (h)
            e = SequenceAt (s, i)\n t = SequenceInsert (s, e)\n y = ConcatFromSequence <axis = 0> (t) }""",
        {"w": normal(3, 3), "i": np.int64(2)},
        ("float16", "ort_graph_optimization"),
    ),
    "a scaler of scikit-learn in front of a network": Report(
        """g (float[n, 4] x) => (float[n, 3] y) {
            s = ai.onnx.ml.Scaler <offset = [0.1, 0.2, 0.3, 0.4], scale = [1.0, 2.0, 3.0, 4.0]> (x)
            y = MatMul (s, w) }""",
        {"w": normal(4, 3)},
        ("float16", *QUANTIZERS),
    ),
    "slices that run backwards": Report(
        "g (float[2, 8] x) => (float[a, b] y) { r = Slice (x, s, e, d, t)\n y = Neg (r) }",
        {"s": np.int64([-1]), "e": np.int64([-9]), "d": np.int64([1]), "t": np.int64([-2])},
        ("symbolic_shape_inference", *SIMPLIFIERS),
    ),
    "a product with one value": Report(
        "g (float[4] x) => (float[3] y, float z) { y = MatMul (x, w)\n z = MatMul (x, v) }",
        {"w": normal(4, 3), "v": normal(4)},
        ("selective_quantization", *QUANTIZERS),
    ),
    "a reduction over no items": Report(
        "g (float[0, 4] x) => (float[4] y) { y = ReduceSum <keepdims = 0> (x, a) }", {"a": np.int64([0])}
    ),
}
REPORTS |= {
    "sizes of a Pad in an attribute": Report(
        """g (float[1, 2, 4, 4] x) => (float[1, 2, 8, 8] y) { u = Upsample <scales = [1.0, 1.0, 2.0, 2.0]> (x)
            p = Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1]> (u)\n y = Conv (p, w) }""",
        {"w": normal(2, 2, 3, 3)},
        ("rewrite_rules", "pad_folding", "transformer_fusion", "opset_conversion"),
        7,
    ),
    "a normalization that scales groups": Report(
        """g (float[n, 4, a, b] x) => (float[n, 4, a, b] y) { h = Conv <pads = [1, 1, 1, 1]> (x, w)
            y = GroupNormalization <num_groups = 2> (h, s, t) }""",
        {"w": normal(4, 4, 3, 3), "s": normal(2), "t": normal(2)},
        ("opset_conversion", "onnxsim", "expand_functions"),
        18,
    ),
    "float32 of no input": Report(
        """g (float[4, 4] x) => (float[4, 4] y) { r = RandomUniform <shape = [4, 4]> ()\n h = MatMul (x, w)
            e = EyeLike <dtype = 1> (h)\n s = Add (r, e)\n y = Mul (h, s) }""",
        {"w": normal(4, 4)},
        ("float16",),
    ),
    "trees in front of other operators": Report(
        """g (float[n, 2] x) => (float[n, 1] y) { t = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1,
            nodes_falsenodeids = [2, 0, 0], nodes_featureids = [0, 0, 0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"],
            nodes_nodeids = [0, 1, 2], nodes_treeids = [0, 0, 0], nodes_truenodeids = [1, 0, 0],
            nodes_values = [0.5, 0.0, 0.0], target_ids = [0, 0], target_nodeids = [1, 2], target_treeids = [0, 0],
            target_weights = [1.0, -1.0]> (x)\n y = Sigmoid (t) }""",
        passes=("float16",),
    ),
    "a sequence as output": Report(
        "g (float[n, 4] x) => (seq(float[1, 3]) y) { h = MatMul (x, w)\n y = SplitToSequence <axis = 0> (h) }",
        {"w": normal(4, 3)},
        ("onnxoptimizer", "float16"),
    ),
    "a product of integers": Report(
        "g (int64[n, 8] x) => (int64[n, 4] y) { y = MatMul (x, w) }",
        {"w": np.arange(32).reshape(8, 4)},
        ("weight_only_quantization", "bnb4_quantization", *QUANTIZERS, "selective_quantization"),
    ),
    "a weight as output": Report(
        "g (float[n, 4] x) => (float[n, 4] y, float[4, 4] w) { y = MatMul (x, w) }",
        {"w": normal(4, 4)},
        ("float16", *QUANTIZERS),
    ),
}
CASES: Final = [(name, pass_name) for name, report in REPORTS.items() for pass_name in report.passes]


def model_of(report: Report) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {report.opset}, "ai.onnx.ml": 3]> {report.text}'
    )
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), key) for key, array in report.weights.items()]
    model.graph.initializer.extend(tensors)
    return model


@pytest.mark.parametrize(("name", "pass_name"), CASES)
def test_passes_take_models_of_public_reports(tmp_path: Path, name: str, pass_name: str) -> None:
    model = model_of(REPORTS[name])
    passes = [(each, {}) for each in (*REQUIRED.get(pass_name, ()), pass_name)]
    result = steps(tmp_path, model, passes, data=pass_name in REQUIRED)[-1]
    assert result["outcome"] in ("ok", "unchanged"), result["message"]


MASK: Final = np.triu(np.ones((1, 8, 8), np.float32), 1)
SCORES: Final = """g (float[1, 8, 8] x) => (float[1, 8, 8] y) {
    h = MatMul (x, w)\n a = Add (h, m)\n s = Softmax (a)\n y = MatMul (s, w) }"""
ROWS: Final = normal(10, 8) * np.float32(10.0) ** np.linspace(-2, 1, 10, dtype=np.float32)[:, None]
QUANTIZED: Final = {
    "a mask of -10000": Report(SCORES, {"w": normal(8, 8), "m": np.float32(-1e4) * MASK}),
    "a mask of the lowest float32": Report(SCORES, {"w": normal(8, 8), "m": np.float32(-3.4e38) * MASK}),
    "an embedding that is also the head": Report(
        "g (int64[n] x) => (float[n, 10] y) { e = Gather (w, x)\n y = Gemm <transB = 1> (e, w, b) }",
        {"w": ROWS, "b": normal(10)},
    ),
    "a weight of a layer and of a branch": Report(
        """g (float[n, 8] x) => (float[n, 8] z) { y = MatMul (x, w)
            m = ReduceMax <keepdims = 0> (y)\n c = Cast <to = 9> (m)\n z = If (c) <
            then_branch = t () => (float[n, 8] p) { p = Gemm <transB = 1> (y, w) },
            else_branch = e () => (float[n, 8] q) { q = MatMul (y, w) }> }""",
        {"w": normal(8, 8)},
    ),
    "a value that is read before and after it is clipped": Report(
        """g (float[1, 4, 6, 6] x) => (float[1, 4, 3, 3] y, float[1, 4, 6, 6] z) { h = Conv <pads = [1, 1, 1, 1]> (x, w)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (h)\n y = Relu (p)
            r = Relu (h)\n z = Add (h, r) }""",
        {"w": normal(4, 4, 3, 3)},
    ),
    "a value with the name that the quantizer gives to a copied bias": Report(
        """g (float[1, 2, 6, 6] x) => (float[1, 2, 4, 4] y) {
            c = Conv (x, w, b)\n b1 = Conv (x, w2, b)\n s = Neg (b1)\n y = Add (c, s) }""",
        {"w": normal(2, 2, 3, 3), "w2": normal(2, 2, 3, 3, seed=1), "b": normal(2)},
    ),
    "convolutions along both axes of a weight": Report(
        "g (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] z) { y = Conv (x, w)\n z = ConvTranspose (y, w) }",
        {"w": normal(6, 4, 3, 3) * np.float32(10.0) ** np.linspace(-1, 1, 6, dtype=np.float32)[:, None, None, None]},
    ),
    "a bias of two layers": Report(
        "g (float[n, 8] x) => (float[n, 8] y) { h = Gemm (x, w, b)\n y = Gemm (h, v, b) }",
        {"w": normal(8, 8), "v": normal(8, 8, seed=3), "b": normal(8)},
    ),
    "two LSTMs with the same weights": Report(
        """g (float[s, n, 8] x) => (float[s, 1, n, 8] y) { a, h1, c1 = LSTM <hidden_size = 8> (x, w, r)
            t = Squeeze (a, k)\n y, h, c = LSTM <hidden_size = 8> (t, w, r) }""",
        {"w": normal(1, 32, 8), "r": normal(1, 32, 8), "k": np.int64([1])},
    ),
}


@pytest.mark.parametrize("params", [{"per_channel": True}, {"quant_format": "QOperator"}])
@pytest.mark.parametrize("name", QUANTIZED)
def test_integers_are_about_as_good_as_they_can_be(tmp_path: Path, name: str, params: dict[str, object]) -> None:
    passes = [*((each, {}) for each in STATIC), ("static_quantization", params)]
    if "LSTM" in name:
        passes = [("dynamic_quantization", {"per_channel": "per_channel" in params})]
    result = steps(tmp_path, model_of(QUANTIZED[name]), passes, data=True)[-1]
    assert result["outcome"] == "ok", result["message"]
    assert result["equivalence"]["max_relative_error"] < 0.05


@pytest.mark.parametrize(
    "name", ["opset_conversion", "simplify", "onnxslim", "onnxoptimizer", "ort_graph_optimization"]
)
def test_models_without_the_default_operators(tmp_path: Path, name: str) -> None:
    assert step(tmp_path, MODELS["trees"](), name)["outcome"] in ("ok", "unchanged")


@pytest.mark.parametrize("name", ["name_fix", "simplify", "ort_graph_optimization", "dynamic_quantization"])
def test_models_without_any_opset_import(tmp_path: Path, name: str) -> None:
    model = MODELS["mlp"]()
    del model.opset_import[:]
    result = step(tmp_path, model, name)
    assert result["outcome"] in ("ok", "unchanged", "refused"), result["message"]
    assert "Error: " not in result["message"]


def test_an_overridable_weight_is_not_folded() -> None:
    """It is an input with a default value: callers may give another one."""
    model = made(
        "g (float[N, 8] x, float[6] s) => (float[N, 6] y) "
        "{ h = Gemm (x, w, b)\n y = BatchNormalization (h, s, o, m, v) }",
        w=normal(8, 6),
        b=normal(6),
        s=np.ones(6, np.float32),
        o=normal(6),
        m=normal(6, seed=1),
        v=np.ones(6, np.float32),
    )
    assert "s" in {value.name for value in BatchNormFolding()(model).graph.input}
    assert "BatchNormalization" in ops(BatchNormFolding()(model))
