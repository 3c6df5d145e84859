"""Models of a few nodes, one per pattern, for the contract suite of the passes. Weights are random but fixed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper, parser

MODELS: dict[str, Callable[[], ModelProto]] = {}


def made(text: str, opset: int = 17, ir: int = 8, domains: str = "", **weights: Any) -> ModelProto:
    """A model from a graph in onnx's text form and weights by name."""
    model = parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}{domains}]> {text}')
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def micro(function: Callable[[], ModelProto]) -> Callable[[], ModelProto]:
    MODELS[function.__name__] = function
    return function


def graph(name: str, text: str, *versions: Any, **weights: Any) -> None:
    """Add a model; the arguments are those of `made`."""
    MODELS[name] = partial(made, text, *versions, **weights)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def positive(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


graph("relu_only", "g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")
graph("doubles", "g (double[2, 4] x) => (double[2, 4] y) { y = Mul(x, w) }", w=np.float64(0.5))


@micro
def double_names() -> ModelProto:
    model = made("g (float[2, 4] x) => (float[2, 4] y) { h = Relu(x)\n y = Neg(h) }")
    for node in model.graph.node:
        node.name = "same"
    return model


graph(
    "conv_batchnorm",
    "g (float[N, 3, 8, 8] x) => (float[N, 8, 8, 8] y)"
    "{ c = Conv <pads = [1, 1, 1, 1]> (x, w)\n b = BatchNormalization (c, s, o, m, v)\n y = Relu(b) }",
    w=normal(8, 3, 3, 3),
    s=positive(8),
    o=normal(8),
    m=normal(8, seed=1),
    v=positive(8, seed=2),
)
graph(
    "lone_batchnorm",
    "g (float[2, 4, 5] x) => (float[2, 4, 5] y) { y = BatchNormalization (x, s, o, m, v) }",
    s=positive(4),
    o=normal(4),
    m=normal(4, seed=1),
    v=positive(4, seed=2),
)
graph(
    "gemm_batchnorm",
    "g (float[N, 8] x) => (float[N, 6] y) { h = Gemm (x, w, b)\n y = BatchNormalization (h, s, o, m, v) }",
    w=normal(8, 6),
    b=normal(6),
    s=positive(6),
    o=normal(6),
    m=normal(6, seed=1),
    v=positive(6, seed=2),
)
graph(
    "conv_scale_shift",
    "g (float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y) { c = Conv (x, w, b)\n m = Mul (c, k)\n y = Add (m, o) }",
    w=normal(4, 3, 3, 3),
    b=normal(4),
    k=np.float32(0.5),
    o=np.float32(0.25),
)
graph(
    "spectrum",
    "g (float[N, 40] x) => (float[N, frames, 9, 2] y) { y = STFT <onesided = 1> (x, step, window) }",
    step=np.int64(8),
    window=np.hanning(16).astype(np.float32),
)
graph(
    "pad_conv",
    "g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) { p = Pad (x, pads, zero)\n y = Conv (p, w) }",
    w=normal(4, 3, 3, 3),
    pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    zero=np.float32(0),
)
graph(
    "mlp",
    "g (float[N, 64] x) => (float[N, 8] y)"
    "{ a = MatMul (x, w1)\n b = Add (a, b1)\n c = Relu (b)\n d = MatMul (c, w2)\n"
    " e = Add (d, b2)\n y = Softmax (e) }",
    w1=normal(64, 64),
    b1=normal(64),
    w2=normal(64, 8, seed=1),
    b2=normal(8, seed=1),
)
graph(
    "gemm_mlp",
    "g (float[N, 16] x) => (float[N, 4] y) { a = Gemm (x, w1, b1)\n b = Relu (a)\n y = Gemm <transB = 1> (b, w2) }",
    w1=normal(16, 8),
    b1=normal(8),
    w2=normal(4, 8),
)
graph(
    "small_cnn",
    "g (float[N, 1, 8, 8] x) => (float[N, 10] y)"
    "{ a = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)\n r = Relu (a)\n"
    " p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)"
    "  c = Conv <pads = [1, 1, 1, 1]> (p, w2)\n d = GlobalAveragePool (c)\n f = Flatten (d)\n"
    " y = Gemm (f, w3, b3) }",
    w1=normal(8, 1, 3, 3),
    b1=normal(8),
    w2=normal(8, 8, 3, 3, seed=1),
    w3=normal(8, 10, seed=2),
    b3=normal(10),
)
graph(
    "constants",
    "g (float[N, 4] x) => (float[N, 4] y)"
    "{ two = Constant <value = float {2.0}> ()\n three = Constant <value_float = 3.0> ()\n six = Mul (two, three)"
    "  big = Add (w, six)\n y = Add (x, big) }",
    w=normal(4),
)
graph(
    "no_ops",
    "g (float[2, 4] x) => (float[2, 4] y)"
    "{ a = Identity (x)\n b = Add (a, zero)\n c = Mul (b, one)\n d = Cast <to = 1> (c)\n"
    " e = Transpose <perm = [0, 1]> (d)"
    "  f = Reshape (e, shape)\n g = Reshape (f, back)\n y = Relu (g) }",
    zero=np.float32(0),
    one=np.float32(1),
    shape=np.array([8]),
    back=np.array([2, 4]),
)
graph(
    "repeated_work",
    "g (float[2, 4] x) => (float[2, 4] y) { a = Mul (x, u)\n b = Mul (x, u)\n c = Mul (x, v)\n"
    " d = Add (a, b)\n y = Add (d, c) }",
    u=normal(4),
    v=normal(4),
)
graph("dead_parts", "g (float[2, 4] x) => (float[2, 4] y) { dead = Neg (x)\n y = Relu (x) }", unused=normal(4))
graph(
    "weights_as_inputs",
    "g (float[2, 4] x, float[4, 4] w) => (float[2, 4] y) { a = MatMul (x, w)\n y = Relu(a) }",
    w=normal(4, 4),
)
graph(
    "old_ir",
    "g (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] b, float[4] k) => (float[1, 4, 6, 6] y)"
    "{ c = Conv (x, w, b)\n r = Relu(c)\n y = Identity(r) }",
    opset=9,
    ir=3,
    w=normal(4, 3, 3, 3),
    b=normal(4),
    k=normal(4),
)
graph(
    "computed_reshape",
    "g (float[N, 2, 3] x) => (float[N, 6] y)"
    "{ s = Shape (x)\n n = Gather (s, zero)\n m = Unsqueeze (n, zero1)\n"
    " t = Concat <axis = 0> (m, six)\n y = Reshape (x, t) }",
    zero=np.int64(0),
    zero1=np.array([0]),
    six=np.array([6]),
)


@micro
def local_function() -> ModelProto:
    return parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[N, 4] x) => (float[N, 4] y) { h = own.twice (x)\n y = Relu (h) }
        <domain: "own", opset_import: ["": 17]> twice (a) => (b) { b = Add (a, a) }"""
    )


graph(
    "celu_hardswish",
    "g (float[2, 4] x, float[2, 4] z) => (float[2, 4] y, bool[2, 4] q)"
    "{ a = Celu <alpha = 0.5> (x)\n y = HardSwish (a)\n q = GreaterOrEqual (x, z) }",
)
graph(
    "int64_ids",
    "g (int64[N, S] ids) => (float[N, S, 8] y) { e = Gather (table, ids)\n y = LayerNormalization (e, s, b) }",
    table=normal(50, 8),
    s=positive(8),
    b=normal(8),
)
graph(
    "cast_input",
    "g (float[2, 3] ids) => (float[2, 3, 4] y) { i = Cast <to = 7> (ids)\n y = Gather (t, i) }",
    t=normal(9, 4),
)
graph(
    "branches",
    """g (float[2, 4] x, bool flag) => (float[2, 4] y)
        { y = If (flag) <
            then_branch = a () => (float[2, 4] p) <float[4, 4] w = {1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0,
              1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0}> { p = MatMul (x, w) },
            else_branch = b () => (float[2, 4] q) { q = Neg (x) } > }""",
)


def branches_of_outer_weights() -> ModelProto:
    return made(
        """g (float[2, 16] x, bool flag) => (float[2, 16] y)
        { y = If (flag) <
            then_branch = a () => (float[2, 16] p) { p = Gemm <transB = 1> (x, w, b) },
            else_branch = c () => (float[2, 16] q) { m = MatMul (x, w)\n q = Add (m, b) } > }""",
        w=normal(16, 16),
        b=normal(16),
    )


def recurrent_branches() -> ModelProto:
    return made(
        """g (float[5, 1, 4] x, bool flag) => (float[5, 1, 1, 8] y)
        { y = If (flag) <
            then_branch = a () => (float[5, 1, 1, 8] p) { p = LSTM <hidden_size = 8> (x, w, r) },
            else_branch = b () => (float[5, 1, 1, 8] q) { q = LSTM <hidden_size = 8> (x, v, r) } > }""",
        w=normal(1, 32, 4),
        v=normal(1, 32, 4, seed=1),
        r=normal(1, 32, 8),
    )


def scanned() -> ModelProto:
    return made(
        """g (float[5, 1, 32] x, float[1, 32] first) => (float[5, 1, 32] y)
        { last, y = Scan <num_scan_inputs = 1, body = b (float[1, 32] h, float[1, 32] e) => (float[1, 32] n,
            float[1, 32] o) { m = MatMul (h, w)\n s = Add (m, e)\n n = Tanh (s)\n o = Identity (n) }> (first, x) }""",
        w=normal(32, 32) / 8,
    )


graph(
    "low_rank_beside_a_layer",
    "g (float[N, 16] x) => (float[N, 16] y)"
    "{ base = MatMul (x, w)\n h = MatMul (x, a)\n d = MatMul (h, b)\n y = Add (base, d) }",
    w=normal(16, 16),
    a=normal(16, 4, seed=1),
    b=normal(4, 16, seed=2),
)
graph(
    "erf_gelu",
    "g (float[N, 16] x) => (float[N, 16] y)"
    "{ h = MatMul (x, w)\n a = Div (h, root)\n e = Erf (a)\n f = Add (e, one)\n"
    " p = Mul (h, f)\n y = Mul (p, half) }",
    w=normal(16, 16),
    root=np.float32(np.sqrt(2.0)),
    one=np.float32(1),
    half=np.float32(0.5),
)
graph("gelu_op", "g (float[2, 8] x) => (float[2, 8] y) { y = Gelu (x) }", opset=20, ir=9)
graph(
    "skip_layer_norm",
    "g (float[N, 6, 16] x, float[N, 6, 16] z) => (float[N, 6, 16] y)"
    "{ a = Add (x, z)\n n = LayerNormalization <axis = -1> (a, s, b)\n m = MatMul (n, w)\n y = Add (m, n) }",
    s=positive(16),
    b=normal(16),
    w=normal(16, 16),
)
graph(
    "arithmetic",
    "g (float[2, 4, 8] q, float[2, 8, 4] k) => (float[2, 4, 4] y, float[2, 4, 8] z, float[2, 4, 8] t)"
    "{ m = MatMul (q, k)\n y = Div (m, root)\n z = Pow (q, two)\n t = Div (z, eight) }",
    root=np.float32(3),
    two=np.float32(2),
    eight=normal(8),
)
graph("half_mean", "g (float16[2, 64] x) => (float16[2, 1] y) { y = ReduceMean <axes = [1]> (x) }")
graph(
    "negative_axes",
    "g (float[2, 8] x) => (float[2, 8] c, float[2, 3] v, int64[2, 3] i, float[2, 2] p)"
    "{ c = CumSum (x, minus)\n v, i = TopK (x, three)\n p = Gather <axis = 1> (x, last) }",
    minus=np.int64(-1),
    three=np.array([3]),
    last=np.array([-1, 0]),
)
graph(
    "one_hot_cast",
    "g (int64[5] i) => (float[5, 6] y) { h = OneHot (i, depth, values)\n y = Cast <to = 1> (h) }",
    depth=np.int64(6),
    values=np.array([0, 1]),
)
graph("open_clip", "g (float[2, 4] x) => (float[2, 4] y) { y = Clip (x, , top) }", top=np.float32(0.5))
graph(
    "hard_swish",
    "g (float[2, 4] x) => (float[2, 4] y)"
    "{ a = Add (x, three)\n c = Clip (a, zero, six)\n p = Mul (x, c)\n y = Div (p, six) }",
    three=np.float32(3),
    zero=np.float32(0),
    six=np.float32(6),
)
graph(
    "cast_chain",
    "g (float[2, 4] x) => (int64[2, 4] y) { r = Relu (x)\n b = Cast <to = 9> (r)\n y = Cast <to = 7> (b) }",
)
graph(
    "integer_compare",
    "g (int32[4] a, int32[4] b) => (bool[4] y, bool[4] z) { y = GreaterOrEqual (a, b)\n z = LessOrEqual (a, b) }",
)
graph(
    "masked_softmax",
    "g (float[2, 4, 4] s) => (float[2, 4, 4] y, float[4, 4] t)"
    "{ h = Where (mask, s, low)\n y = Softmax <axis = -1> (h)\n t = Where (mask, u, v) }",
    mask=np.tril(np.ones((4, 4), dtype=bool)),
    low=np.float32(-1e9),
    u=normal(4, 4),
    v=normal(4, 4, seed=1),
)
graph("triangle", "g (float[2, 5, 4] x) => (float[2, 5, 4] y) { y = Trilu <upper = 0> (x, k) }", k=np.int64(1))
graph(
    "rotate_half",
    "g (float[2, 3, 8] x) => (float[2, 3, 8] y)"
    "{ back = Slice (x, four, end, last)\n front = Slice (x, zero, four, last)\n n = Neg (back)\n"
    "  y = Concat <axis = -1> (n, front) }",
    zero=np.array([0]),
    four=np.array([4]),
    end=np.array([2**40]),
    last=np.array([-1]),
)
graph(
    "einsum",
    'g (float[2, 3, 4] x) => (float[2, 3, 5] y) { y = Einsum <equation = "bij,jk->bik"> (x, w) }',
    w=normal(4, 5),
)
graph(
    "recurrent",
    "g (float[5, 1, 4] x) => (float[5, 1, 1, 6] y) { y = LSTM <hidden_size = 6> (x, w, r) }",
    w=normal(1, 24, 4),
    r=normal(1, 24, 6),
)


@micro
def recurrent_from_zeros() -> ModelProto:
    """A recurrent layer as PyTorch exports it: the zeros that it starts with have the shape of the batch."""
    return made(
        """g (float[5, N, 4] x) => (float[5, 1, N, 6] y) {
            shape = Shape <start = 1, end = 2> (x)
            sizes = Concat <axis = 0> (one, shape, six)
            zeros = ConstantOfShape (sizes)
            y = LSTM <hidden_size = 6> (x, w, r, , , zeros, zeros)
        }""",
        w=normal(1, 24, 4),
        r=normal(1, 24, 6),
        one=np.array([1]),
        six=np.array([6]),
    )


@micro
def loop_with_carried_weights() -> ModelProto:
    """A recurrent layer as Keras exports it: the loop carries the weights and multiplies one row per iteration."""
    return made(
        """g (float[5, 2, 3] x, float[2, 4] start) => (float[2, 4] last, float[s, 2, 4] all) {
            last, w_out, u_out, all = Loop (count, yes, start, w, u) <body =
                body (int64 i, bool c, float[2, 4] h, float[3, 4] wi, float[4, 4] ui)
                  => (bool c_out, float[2, 4] h_out, float[3, 4] w_same, float[4, 4] u_same, float[2, 4] step) {
                    c_out = Identity (c)
                    row = Gather (x, i)
                    input = MatMul (row, wi)
                    carried = MatMul (h, ui)
                    sum = Add (input, carried)
                    h_out = Tanh (sum)
                    step = Identity (h_out)
                    w_same = Identity (wi)
                    u_same = Identity (ui)
                }>
        }""",
        count=np.int64(5),
        yes=np.True_,
        w=normal(3, 4),
        u=normal(4, 4),
    )


@micro
def trees() -> ModelProto:
    """No operator of ai.onnx, and no import of it."""
    node = onnx.helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.1, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[1.0, 2.0],
    )
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [tensor("x", 1, ["N", 3])], [tensor("y", 1, ["N", 1])])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)


@micro
def svm() -> ModelProto:
    node = onnx.helper.make_node(
        "SVMRegressor", ["x"], ["y"], domain="ai.onnx.ml", coefficients=[0.5, -0.25], kernel_params=[0.1, 0.0, 3.0],
        kernel_type="RBF", n_supports=2, rho=[0.1], support_vectors=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    )  # fmt: skip
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [tensor("x", 1, ["N", 3])], [tensor("y", 1, ["N", 1])])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)


graph(
    "tfidf",
    'g (string[4] x) => (float[3] y) { y = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1,'
    ' max_skip_count = 0, ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_strings = ["a", "the", "zero"]> (x) }',
)
graph("dropout_training_leftovers", "g (float[2, 4] x) => (float[2, 4] y) { d = Dropout (x)\n y = Relu (d) }")
graph(
    "image_in",
    "g (float[1, 3, 8, 8] image) => (float[1, 2] y) { c = Conv (image, w)\n"
    " p = GlobalAveragePool (c)\n y = Flatten (p) }",
    w=normal(2, 3, 3, 3),
)


@micro
def attention() -> ModelProto:
    """One layer of attention, as PyTorch's current exporter writes it: 4 heads of 8."""
    text = ""
    for name in "qkv":
        text += f"{name}1 = MatMul (x, w{name})\n {name}2 = Add ({name}1, b{name})\n "
        text += f"{name}3 = Reshape ({name}2, heads)\n {name}4 = Transpose <perm = [0, 2, 1, 3]> ({name}3)\n "
    return made(
        "g (float[2, 6, 32] x) => (float[2, 6, 32] y) {"
        + text
        + "kt = Transpose <perm = [0, 1, 3, 2]> (k4)\n qs = Mul (q4, root)\n ks = Mul (kt, root)\n"
        " s = MatMul (qs, ks)\n p = Softmax <axis = -1> (s)\n a = MatMul (p, v4)\n"
        " t = Transpose <perm = [0, 2, 1, 3]> (a)\n r = Reshape (t, flat)\n y = MatMul (r, wo) }",
        wq=normal(32, 32),
        wk=normal(32, 32, seed=1),
        wv=normal(32, 32, seed=2),
        wo=normal(32, 32, seed=3),
        bq=normal(32),
        bk=normal(32, seed=1),
        bv=normal(32, seed=2),
        heads=np.array([2, 6, 4, 8]),
        flat=np.array([2, 6, 32]),
        root=np.float32(8**-0.25),
    )


graph(
    "quantized_matmul",
    "g (float[N, 4] x) => (float[N, 3] y)"
    "{ q = QuantizeLinear (x, s, z)\n d = DequantizeLinear (q, s, z)\n"
    "w = DequantizeLinear <axis = 1> (v, t)\n y = MatMul (d, w) }",
    s=np.float32(0.02),
    z=np.uint8(128),
    v=(normal(4, 3) * 20).astype(np.int8),
    t=np.array([0.1, 0.2, 0.3], np.float32),
)


@micro
def signed_activations() -> ModelProto:
    """A layer as `quantize_static` writes it by default."""
    return made(
        "g (float[N, 4] x) => (float[N, 3] y)"
        "{ q = QuantizeLinear (x, s, z)\n d = DequantizeLinear (q, s, z)\n y = MatMul (d, w) }",
        s=np.float32(0.02),
        z=np.int8(-7),
        w=normal(4, 3),
    )


@micro
def tied_embedding() -> ModelProto:
    """A language model whose head is the transposed table of tokens, stored twice."""
    table = normal(80, 32)
    return made(
        "g (int64[N] ids) => (float[N, 80] y) { e = Gather (table, ids)\n h = Tanh (e)\n y = MatMul (h, head) }",
        table=table,
        head=np.ascontiguousarray(table.T),
    )


@micro
def fused_conv() -> ModelProto:
    """A convolution as onnxruntime saves it in optimized models."""
    return made(
        "g (float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y)"
        '{ y = com.microsoft.FusedConv <activation = "Relu"> (x, w, b) }',
        domains=', "com.microsoft": 1',
        w=normal(4, 3, 3, 3),
        b=normal(4),
    )


@micro
def upsampling() -> ModelProto:
    """A transposed convolution whose kernel overlaps."""
    return made(
        "g (float[1, 3, 4, 4] x) => (float[1, 2, 8, 8] y)"
        "{ y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w) }",
        w=normal(3, 2, 4, 4),
    )


@micro
def long_signal() -> ModelProto:
    """Convolutions along a signal, the second with a kernel as long as its input."""
    return made(
        "g (float[1, 2, 40] x) => (float[1, 8, 40] y)"
        "{ h = Conv <pads = [1, 1]> (x, w)\n r = Relu (h)\n y = Conv <pads = [15, 16]> (r, v) }",
        w=normal(8, 2, 3),
        v=normal(8, 8, 32),
    )
