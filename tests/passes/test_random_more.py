"""Random graphs with adversarial constants keep their results through every pass that promises it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import pytest
from bench import outputs, saved, step
from micro_models import made

Rng: TypeAlias = np.random.Generator
Arrays: TypeAlias = dict[str, Any]

CONSTANTS: Final = (0, -0.0, 1, -1, 2, 0.5, 3, 6, 1 / 6, 1e-10, 1e-42, 1 + 2e-7, 0.1, np.inf, -np.inf, np.nan)
SHAPES: Final = ((), (1,), (3,), (2, 1), (1, 1))
INPUTS: Final = (0, -0.0, 1, -1, 2, 0.5, -3, 6, 1e-10, -1e-10, 1e-3, 40)
UNARY: Final = (
    *("Relu", "Neg", "Abs", "Exp", "Log", "Sqrt", "Sigmoid", "Tanh", "Erf", "Floor", "Identity", "Reciprocal"),
    *("Sign", "Softplus", "Softmax", "Dropout"),
)
BINARY: Final = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Add", "Mul", "Div")
VIEWS: Final = (
    "{0}_t = Transpose ({x})\n {0} = Transpose ({0}_t)",
    "{0}_f = Reshape ({x}, flat)\n {0} = Reshape ({0}_f, shape)",
    "{0}_u = Unsqueeze ({x}, first)\n {0} = Squeeze ({0}_u, first)",
    "{0}_a, {0}_b = Split <axis = 1> ({x}, split)\n {0} = Concat <axis = -1> ({0}_a, {0}_b)",
    "{0}_m = ReduceMean <axes = [-1]> ({x})\n {0} = Sub ({x}, {0}_m)",
    "{0}_c = Greater ({x}, one)\n {0} = Where ({0}_c, {x}, one)",
    "{0}_s = Slice ({x}, first, three, second)\n {0} = Add ({x}, {0}_s)",
)
"""Pieces with one input and one output of the same shape."""
WEIGHTS: Final[Arrays] = {
    "flat": np.array([-1]),
    "shape": np.array([2, 3]),
    "first": np.array([0]),
    "split": np.array([1, 2]),
    "second": np.array([1]),
    "three": np.array([3]),
    "one": np.float32(1),
}
LENGTH: Final = 8
PASSES: Final = (
    *("simplify", "onnxslim", "onnxsim", "onnxscript_optimize", "onnxoptimizer", "rewrite_rules", "constant_folding"),
    *("common_subexpression_elimination", "merge_reshapes", "local_rewrites", "ort_graph_optimization"),
    *("transformer_fusion", "opset_conversion", "quant_pre_process"),
)


def chosen(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def piece(rng: Rng, name: str, values: list[str], weights: Arrays) -> str:
    """The text of a random piece of a graph that makes the value `name`; adds its constants to the weights."""
    x = chosen(rng, values[-2:])
    kind = rng.random()
    if kind < 0.3:
        return f"{name} = {chosen(rng, UNARY)} ({x})"
    if kind < 0.5:
        return str(chosen(rng, VIEWS)).format(name, x=x)
    if kind < 0.6:
        return f"{name} = {chosen(rng, BINARY)} ({x}, {chosen(rng, values)})"
    bounds = [f"{name}_k", f"{name}_l"]
    for bound in bounds:
        weights[bound] = np.full(() if kind > 0.9 else chosen(rng, SHAPES), chosen(rng, CONSTANTS), np.float32)
    if kind > 0.9:
        return f"{name} = Clip ({x}, {', '.join(bounds)})"
    first, second = chosen(rng, BINARY), chosen(rng, BINARY)
    return f"{name}_h = {first} ({x}, {bounds[0]})\n {name} = {second} ({name}_h, {bounds[1]})"


def random_graph(rng: Rng) -> onnx.ModelProto:
    weights, values = dict(WEIGHTS), ["x"]
    text = ""
    for number in range(LENGTH):
        name = f"v{number}"
        text += piece(rng, name, values, weights) + "\n"
        values.append(name)
    used = {name: value for name, value in weights.items() if f"{name})" in text or f"{name}," in text}
    ends = ", ".join(f"float[2, 3] {value}" for value in values[-2:])
    return made(f"g (float[2, 3] x) => ({ends}) {{ {text} }}", **used)


def differs(before: list[Any], after: list[Any]) -> bool:
    """Tell if outputs differ by more than rounding, or in what is infinite or not a number."""
    for one, other in zip(before, after, strict=True):
        scale = np.abs(one[np.isfinite(one)]).max(initial=0)
        if not np.allclose(one, other, rtol=1e-4, atol=1e-6 * scale + 1e-37, equal_nan=True):
            return True
    return False


def is_ill_conditioned(run: Callable[[Any], list[Any]], x: Any, rng: Rng) -> bool:
    """Tell if changes of the input by rounding change the outputs as much."""
    return any(differs(run(x), run(x * (1 + 3e-7 * rng.standard_normal(x.shape)).astype(np.float32))) for _ in range(4))


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_of_random_graphs_stay_equal(name: str, tmp_path: Path) -> None:
    plain = {"graph_optimization_level": "disable"}
    for seed in range(4, 40):
        rng = np.random.default_rng([seed, PASSES.index(name)])
        model = random_graph(rng)
        result = step(tmp_path, model, name)
        if result["outcome"] != "ok":
            assert result["outcome"] == "unchanged" or result["equivalence"], result["message"]
            continue
        after = saved(result)
        for _ in range(4):
            x = rng.choice(np.array(INPUTS, np.float32), (2, 3))
            before, changed = (outputs(each, tmp_path, {"x": x}, plain) for each in (model, after))
            if differs(before, changed):
                run = lambda feed: outputs(model, tmp_path, {"x": feed}, plain)  # noqa: E731, B023
                assert is_ill_conditioned(run, x, rng), f"{seed}: {onnx.printer.to_text(model)}"
