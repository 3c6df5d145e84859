"""Random nodes stay as many and as independent as they are, whatever a library does to nodes with equal inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from micro_models import made

import autoopt
from autoopt.engine.tools.apply import PassFailed
from autoopt.model import io
from autoopt.model.random_nodes import random_nodes
from autoopt.model.session import make_plain_session
from autoopt.passes.base import Pass
from autoopt.passes.verification.equivalence import Reference, compare

JOINING = (
    *("common_subexpression_elimination", "onnxscript_optimize", "onnxslim", "onnxsim", "ort_graph_optimization"),
    *("onnxoptimizer", "constant_folding", "quant_pre_process"),
)
FOLDED = [(name, "ort_graph_optimization") for name in ("Bernoulli", "Dropout")]
"""Draws that libraries fold or join whatever their seeds."""
TWO_DRAWS = {
    "RandomNormalLike": "a = RandomNormalLike (x)\n b = RandomNormalLike (x)",
    "RandomUniform": "a = RandomUniform <shape = [8, 64]> ()\n b = RandomUniform <shape = [8, 64]> ()",
    "Bernoulli": "p = Constant <value_float = 0.5> ()\n h = Add (x, p)\n a = Bernoulli (h)\n b = Bernoulli (h)",
    "Dropout": """t = Constant <value = bool {1}> ()\n o = Constant <value_float = 1.0> ()
        r = Constant <value_float = 0.5> ()\n h = Add (x, o)\n a = Dropout (h, r, t)\n b = Dropout (h, r, t)""",
}


def two_draws(name: str) -> onnx.ModelProto:
    """A model that returns the difference of two independent draws."""
    return made(f"g (float[8, 64] x) => (float[8, 64] y) {{ {TWO_DRAWS[name]}\n i = Identity (a)\n y = Sub (i, b) }}")


def variance(model: onnx.ModelProto, tmp_path: Path) -> float:
    session = make_plain_session(io.save(model, tmp_path))
    zeros = np.zeros((8, 64), np.float32)
    return float(np.var([session.run(None, {"x": zeros})[0] for _ in range(8)]))


@pytest.mark.parametrize(
    ("name", "pass_name"),
    [(name, each) for name in TWO_DRAWS for each in JOINING if name == "RandomNormalLike" or each in JOINING[2:5]],
)
def test_two_draws_stay_independent(name: str, pass_name: str, tmp_path: Path) -> None:
    model = two_draws(name)
    if (name, pass_name) in FOLDED:
        with pytest.raises(PassFailed, match="nodes that draw random numbers are gone"):
            autoopt.get_pass(pass_name)(model)
        return
    changed = autoopt.get_pass(pass_name)(model)
    assert variance(changed, tmp_path) == pytest.approx(variance(model, tmp_path), rel=0.3)
    assert all(attribute.name != "seed" for node in changed.graph.node for attribute in node.attribute)


def test_calls_of_a_function_that_draws_stay_apart() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "mine": 1]>
        g (float[4] x) => (float[4] y) { a = mine.noisy (x)\n b = mine.noisy (x)\n i = Identity (b)\n y = Sub (a, i) }
        <domain: "mine", opset_import: ["": 17]> noisy (w) => (o) { o = RandomNormalLike (w) }""")
    for name in ("common_subexpression_elimination", "identity_elimination"):
        model = autoopt.get_pass(name)(model)
    assert [node.op_type for node in model.graph.node if not node.attribute] == ["noisy", "noisy", "Sub"]


def test_seeds_of_the_model_stay() -> None:
    model = made(
        "g (float[4] x) => (float[4] y) { i = Identity (x)\n r = RandomNormalLike <seed = 7.0> (i)\n y = Add (i, r) }"
    )
    changed = autoopt.get_pass("identity_elimination")(model)
    assert [a.f for node in changed.graph.node for a in node.attribute if a.name == "seed"] == [7.0]


def test_draws_count_in_each_call_and_in_the_larger_branch_if_outputs_depend_on_them() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "mine": 1]>
        g (float[4] x, bool c) => (float[4] y) {
            unused = RandomNormalLike (x)
            a = mine.noisy (x)\n b = mine.noisy (a)
            z = If (c) <
                then_branch = t () => (float[4] u) {
                    p = RandomNormalLike (b)\n q = RandomNormalLike (b)\n u = Add (p, q) },
                else_branch = e () => (float[4] v) { v = RandomNormalLike (b) }>
            y = Neg (z)
        }
        <domain: "mine", opset_import: ["": 17]> noisy (w) => (o) { n = RandomNormalLike (w)\n o = Add (w, n) }""")
    assert random_nodes(model) == 4


class Equal(Pass):
    tolerance = "equal"


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("r = RandomNormalLike (x)\n y = Add (x, r)", ""),
        ("o = Constant <value_float = 3.0> ()\n r = RandomNormalLike (x)\n s = Add (x, r)\n y = Add (s, o)", "seeds"),
        ("r = RandomNormalLike <scale = 2.0> (x)\n y = Add (x, r)", "seeds"),
        ("y = Identity (x)", "random"),
        ("other = RandomNormalLike (x)\n y = Add (x, other)", ""),  # in the same order, under another name
    ],
)
def test_random_outputs_are_compared_with_the_same_seeds(nodes: str, reason: str, tmp_path: Path) -> None:
    models = [
        made(f"g (float[n, 4] x) => (float[n, 4] y) {{ {text} }}")
        for text in ("r = RandomNormalLike (x)\n y = Add (x, r)", nodes)
    ]
    before, after = (io.save(model, tmp_path / str(number)) for number, model in enumerate(models))
    found, _ = compare(Reference(before, models[0]), after, models[1], Equal())
    assert found.status == ("different" if reason else "same")
    assert reason in found.reason
