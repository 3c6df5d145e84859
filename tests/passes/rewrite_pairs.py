"""Pairs of small models: rewrites that only round differently, and changes that a check must not take for rounding.

Each function makes the models before and after from a random generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from micro_models import made
from onnx import ModelProto

Rng: TypeAlias = np.random.Generator
Pair: TypeAlias = tuple[ModelProto, ModelProto]
PairMaker: TypeAlias = Callable[[Rng], Pair]

EQUAL: dict[str, PairMaker] = {}
WRONG: dict[str, PairMaker] = {}


def equal(function: PairMaker) -> PairMaker:
    EQUAL[function.__name__] = function
    return function


def wrong(function: PairMaker) -> PairMaker:
    WRONG[function.__name__] = function
    return function


def normal(rng: Rng, *shape: int, scale: float = 1.0) -> Any:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def layers(rng: Rng, width: int = 32) -> tuple[str, dict[str, Any]]:
    """A few dense layers from `x` to `h`: text and weights."""
    depth = int(rng.integers(1, 6))
    text, weights = "", {}
    value = "x"
    for number in range(depth):
        name = "h" if number == depth - 1 else f"h{number}"
        text += f"m{number} = MatMul (x{number}, w{number})\n a{number} = Add (m{number}, b{number})\n".replace(
            f"(x{number},", f"({value},"
        )
        text += f"{name} = Relu (a{number})\n"
        weights[f"w{number}"] = normal(rng, width, width, scale=width**-0.5)
        weights[f"b{number}"] = normal(rng, width)
        value = name
    return text, weights


def head(text: str, output: str = "float[N, 32] y") -> str:
    return f"g (float[N, 32] x) => ({output}) {{ {text} }}"


@equal
def sum_in_another_order(rng: Rng) -> Pair:
    text, weights = layers(rng)
    weights.update(c=normal(rng, 32, scale=100), d=normal(rng, 32, scale=100))
    before = made(head(f"{text} s = Add (h, c)\n y = Add (s, d)"), **weights)
    return before, made(head(f"{text} s = Add (c, d)\n y = Add (h, s)"), **weights)


@equal
def products_of_weights_folded(rng: Rng) -> Pair:
    text, weights = layers(rng)
    a, b = normal(rng, 32, 32), normal(rng, 32, 32)
    before = made(head(f"{text} m = MatMul (h, a)\n y = MatMul (m, b)"), a=a, b=b, **weights)
    folded = (a.astype(np.float64) @ b).astype(np.float32)
    return before, made(head(f"{text} y = MatMul (h, f)"), f=folded, **weights)


@equal
def sum_as_a_matrix_product(rng: Rng) -> Pair:
    text, weights = layers(rng)
    before = made(head(f"{text} y = ReduceSum (h, axis)", "float[N, 1] y"), axis=np.array([1]), **weights)
    ones = np.ones((32, 1), np.float32)
    return before, made(head(f"{text} y = MatMul (h, o)", "float[N, 1] y"), o=ones, **weights)


@equal
def saturated_sigmoid_in_parts(rng: Rng) -> Pair:
    """Most values are within 1e-7 of 0 or 1."""
    text, weights = layers(rng)
    weights["k"] = np.float32(-30.0)
    one = np.float32(1)
    before = made(head(f"{text} s = Mul (h, k)\n y = Sigmoid (s)"), **weights)
    parts = "s = Mul (h, k)\n n = Neg (s)\n e = Exp (n)\n d = Add (o, e)\n y = Div (o, d)"
    return before, made(head(f"{text} {parts}"), o=one, **weights)


@equal
def sigmoid_that_saturates_everywhere(rng: Rng) -> Pair:
    """All values are within 1e-6 of 0, where the runtime's logistic function is off by 1e-7."""
    text, weights = layers(rng)
    weights["k"] = np.float32(-17.0)
    before = made(head(f"{text} n = Tanh (h)\n s = Sub (k, n)\n y = Sigmoid (s)"), **weights)
    parts = "n = Tanh (h)\n s = Sub (n, k)\n e = Exp (s)\n d = Add (o, e)\n y = Div (o, d)"
    return before, made(head(f"{text} {parts}"), o=np.float32(1), **weights)


@equal
def logarithm_of_a_saturated_sigmoid(rng: Rng) -> Pair:
    text, weights = layers(rng)
    weights.update(k=np.float32(3.0), tiny=np.float32(1e-3), two=np.float32(2.0))
    end = "p = Add (s, tiny)\n y = Log (p)"
    before = made(head(f"{text} z = Mul (h, k)\n s = Sigmoid (z)\n {end}"), **weights)
    half = np.float32(0.5)
    tanh = "z = Mul (h, k)\n q = Mul (z, half)\n t = Tanh (q)\n r = Mul (t, half)\n s = Add (r, half)"
    return before, made(head(f"{text} {tanh}\n {end}"), half=half, **weights)


@equal
def batch_normalization_folded(rng: Rng) -> Pair:
    w, s, b, m = normal(rng, 8, 3, 3, 3), normal(rng, 8), normal(rng, 8), normal(rng, 8, scale=20)
    v = rng.uniform(0.01, 3, 8).astype(np.float32)
    signature = "g (float[N, 3, 8, 8] x) => (float[N, 8, 6, 6] y)"
    before = made(
        f"{signature} {{ c = Conv (x, w)\n n = BatchNormalization (c, s, b, m, v)\n y = Relu (n) }}",
        w=w,
        s=s,
        b=b,
        m=m,
        v=v,
    )
    factor = s / np.sqrt(v + np.float32(1e-5))
    folded = {"w": w * factor[:, None, None, None], "b": b - m * factor}
    return before, made(f"{signature} {{ c = Conv (x, w, b)\n y = Relu (c) }}", **folded)


@equal
def layer_normalization_in_parts(rng: Rng) -> Pair:
    text, weights = layers(rng)
    weights.update(s=normal(rng, 32), b=normal(rng, 32), far=np.float32(30))
    before = made(head(f"{text} f = Add (h, far)\n y = LayerNormalization (f, s, b)"), **weights)
    parts = (
        "f = Add (h, far)\n m = ReduceMean <axes = [-1]> (f)\n d = Sub (f, m)\n q = Mul (d, d)\n"
        "v = ReduceMean <axes = [-1]> (q)\n e = Add (v, eps)\n r = Sqrt (e)\n n = Div (d, r)\n k = Mul (n, s)\n"
        "y = Add (k, b)"
    )
    return before, made(head(f"{text} {parts}"), eps=np.float32(1e-5), **weights)


@equal
def gelu_in_another_order(rng: Rng) -> Pair:
    text, weights = layers(rng)
    weights.update(r=np.float32(2**-0.5), o=np.float32(1), third=np.float32(1 / 3), k=np.float32(-2))
    start = "z = Mul (h, k)\n q = Mul (z, r)\n e = Erf (q)\n a = Add (e, o)\n"
    before = made(head(f"{text} {start} p = Mul (z, a)\n y = Mul (p, third)"), **weights)
    return before, made(head(f"{text} {start} p = Mul (z, third)\n y = Mul (p, a)"), **weights)


@equal
def scale_of_attention_moved(rng: Rng) -> Pair:
    weights = {name: normal(rng, 32, 32) for name in ("q", "k")}
    weights["s"] = np.float32(32**-0.5)
    signature = "g (float[N, 8, 32] x) => (float[N, 8, 32] y)"
    start = "a = MatMul (x, q)\n b = MatMul (x, k)\n"
    end = "p = Softmax <axis = -1> (u)\n y = MatMul (p, x)"
    first = f"{start} t = Transpose <perm = [0, 2, 1]> (b)\n m = MatMul (a, t)\n u = Mul (m, s)\n {end}"
    second = f"{start} c = Mul (a, s)\n t = Transpose <perm = [0, 2, 1]> (b)\n u = MatMul (c, t)\n {end}"
    return made(f"{signature} {{ {first} }}", **weights), made(f"{signature} {{ {second} }}", **weights)


@equal
def class_of_saturated_scores(rng: Rng) -> Pair:
    """Several classes tie at 1 but for a rounding."""
    text, weights = layers(rng)
    weights.update(k=np.float32(17.0), half=np.float32(0.5))
    end = "y = ArgMax <axis = 1, keepdims = 0> (s)"
    before = made(head(f"{text} z = Mul (h, k)\n s = Sigmoid (z)\n {end}", "int64[N] y"), **weights)
    tanh = "z = Mul (h, k)\n q = Mul (z, half)\n t = Tanh (q)\n r = Mul (t, half)\n s = Add (r, half)"
    return before, made(head(f"{text} {tanh}\n {end}", "int64[N] y"), **weights)


@equal
def integers_at_a_boundary(rng: Rng) -> Pair:
    """One in about ten values is within a rounding of a half."""
    text, weights = layers(rng)
    a, b = normal(rng, 32), normal(rng, 32, scale=1e6)
    end = "r = Round (q)\n y = Cast <to = 6> (r)"
    before = made(head(f"{text} p = Mul (h, a)\n q = Mul (p, b)\n {end}", "int32[N, 32] y"), a=a, b=b, **weights)
    return before, made(head(f"{text} q = Mul (h, c)\n {end}", "int32[N, 32] y"), c=a * b, **weights)


@equal
def quantized_values_at_a_boundary(rng: Rng) -> Pair:
    """Values are rounded to steps of 1e-5; one in about fifty is within a rounding of the next step."""
    text, weights = layers(rng)
    a, b = normal(rng, 32, 32, scale=32**-0.5), normal(rng, 32, 32, scale=32**-0.5)
    weights.update(s=np.float32(1e5), t=np.float32(1e-5))
    end = "p = Mul (m, s)\n q = Round (p)\n y = Mul (q, t)"
    before = made(head(f"{text} i = MatMul (h, a)\n m = MatMul (i, b)\n {end}"), a=a, b=b, **weights)
    folded = (a.astype(np.float64) @ b).astype(np.float32)
    return before, made(head(f"{text} m = MatMul (h, f)\n {end}"), f=folded, **weights)


@wrong
def constant_under_a_logarithm_dropped(rng: Rng) -> Pair:
    text, weights = layers(rng)
    weights["tiny"] = np.float32(1e-10)
    before = made(head(f"{text} a = Add (h, tiny)\n y = Log (a)"), **weights)
    return before, made(head(f"{text} y = Log (h)"), **weights)


@wrong
def constant_under_the_logarithm_of_an_input_dropped(rng: Rng) -> Pair:
    del rng
    before = made(head("a = Add (x, tiny)\n y = Log (a)"), tiny=np.float32(1e-10))
    return before, made(head("y = Log (x)"))


@wrong
def constant_under_the_logarithm_of_a_power_dropped(rng: Rng) -> Pair:
    """As in a spectrogram: only silence, which is all zeros, shows the constant."""
    weights = {"w": normal(rng, 32, 32)}
    power = "m = MatMul (x, w)\n p = Mul (m, m)"
    before = made(head(f"{power}\n a = Add (p, tiny)\n y = Log (a)"), tiny=np.float32(1e-10), **weights)
    return before, made(head(f"{power}\n y = Log (p)"), **weights)


@wrong
def bound_that_only_large_values_reach_dropped(rng: Rng) -> Pair:
    text, weights = layers(rng)
    bounds = {"low": np.float32(-40), "high": np.float32(40)}
    before = made(head(f"c = Clip (x, low, high)\n {text.replace('(x,', '(c,')} y = Identity (h)"), **bounds, **weights)
    return before, made(head(f"{text} y = Identity (h)"), **weights)


@wrong
def a_row_of_weights_off_by_a_thousandth(rng: Rng) -> Pair:
    text, weights = layers(rng)
    changed = {name: value.copy() for name, value in weights.items()}
    matrix = changed["w0"]
    # A whole row, because a Relu may cut off what a single weight feeds.
    matrix[int(rng.integers(32))] += np.float32(1e-3)
    before = made(head(f"{text} y = Sigmoid (h)"), **weights)
    return before, made(head(f"{text} y = Sigmoid (h)"), **changed)


@wrong
def all_weights_rounded_to_half_precision(rng: Rng) -> Pair:
    text, weights = layers(rng)
    changed = {name: value.astype(np.float16).astype(np.float32) for name, value in weights.items()}
    before = made(head(f"{text} y = Softmax (h)"), **weights)
    return before, made(head(f"{text} y = Softmax (h)"), **changed)


@wrong
def softmax_along_another_axis(rng: Rng) -> Pair:
    weights = {"w": normal(rng, 32, 32)}
    signature = "g (float[N, 8, 32] x) => (float[N, 8, 32] y)"
    models = [
        made(f"{signature} {{ m = MatMul (x, w)\n y = Softmax <axis = {axis}> (m) }}", **weights) for axis in (-1, 1)
    ]
    return models[0], models[1]


@wrong
def weight_transposed(rng: Rng) -> Pair:
    text, weights = layers(rng)
    return (
        made(head(f"{text} y = Tanh (h)"), **weights),
        made(head(f"{text} y = Tanh (h)"), **{**weights, "w0": weights["w0"].T.copy()}),
    )


@wrong
def another_epsilon(rng: Rng) -> Pair:
    weights = {"s": normal(rng, 32), "b": normal(rng, 32)}
    models = [
        made(head(f"y = LayerNormalization <epsilon = {epsilon}> (x, s, b)"), **weights) for epsilon in ("1e-5", "1e-4")
    ]
    return models[0], models[1]


@wrong
def gelu_approximated(rng: Rng) -> Pair:
    text, weights = layers(rng)
    exact = {"r": np.float32(2**-0.5), "o": np.float32(1), "half": np.float32(0.5)}
    before = made(
        head(f"{text} q = Mul (h, r)\n e = Erf (q)\n a = Add (e, o)\n p = Mul (h, a)\n y = Mul (p, half)"),
        **exact,
        **weights,
    )
    tanh = {"c": np.float32(0.044715), "f": np.float32((2 / np.pi) ** 0.5), "o": np.float32(1), "half": np.float32(0.5)}
    approximation = (
        "s = Mul (h, h)\n u = Mul (s, h)\n v = Mul (u, c)\n w = Add (h, v)\n k = Mul (w, f)\n t = Tanh (k)\n"
        "a = Add (t, o)\n p = Mul (h, a)\n y = Mul (p, half)"
    )
    return before, made(head(f"{text} {approximation}"), **tanh, **weights)


@wrong
def class_along_another_axis(rng: Rng) -> Pair:
    weights = {"w": normal(rng, 32, 8)}
    signature = "g (float[N, 8, 32] x) => (int64[N, 8] y)"
    models = [
        made(f"{signature} {{ m = MatMul (x, w)\n y = ArgMax <axis = {axis}, keepdims = 0> (m) }}", **weights)
        for axis in (-1, 1)
    ]
    return models[0], models[1]


@wrong
def rounded_down_instead_of_to_the_nearest(rng: Rng) -> Pair:
    text, weights = layers(rng)
    models = [
        made(head(f"{text} r = {op} (h)\n y = Cast <to = 6> (r)", "int32[N, 32] y"), **weights)
        for op in ("Round", "Floor")
    ]
    return models[0], models[1]
