"""The quick equivalence check."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import MODELS, made, normal
from rewrite_pairs import EQUAL, WRONG, Pair

from autoopt.model import io
from autoopt.model.session import make_plain_session
from autoopt.passes.base import Pass, SourceFile
from autoopt.passes.verification import equivalence
from autoopt.passes.verification.equivalence import CheckResult, Reference, compare, find_defect, verify
from autoopt.registry import Tolerance


class Lossless(Pass):
    tolerance = "lossless"


def compared(before: onnx.ModelProto, after: onnx.ModelProto, folder: Path) -> Any:
    paths = [io.save(model, folder / str(i)) for i, model in enumerate((before, after))]
    return compare(Reference(paths[0], before), paths[1], after, Lossless())[0]


def test_a_model_broken_by_the_pass_is_different(tmp_path: Path) -> None:
    found = compared(MODELS["relu_only"](), MODELS["double_names"](), tmp_path)
    assert (found.status, "same node name" in found.reason) == ("different", True)


def test_a_model_that_never_ran_is_not_compared(tmp_path: Path) -> None:
    found = compared(MODELS["double_names"](), MODELS["double_names"](), tmp_path)
    assert (found.status, "input model" in found.reason) == ("not run", True)


class Lossy(Pass):
    tolerance = "lossy"


def test_what_follows_a_lossy_pass_is_compared_on_all_inputs_again(tmp_path: Path) -> None:
    model = made("g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }")
    models = [io.save(model, tmp_path / name) for name in "ab"]
    before = Reference(models[0], io.load(models[0]))
    result, after = compare(before, models[1], io.load(models[1]), Lossy())
    assert result.status == "same"
    assert len(after.inferences) == 1
    result, _ = compare(after, models[0], io.load(models[0]), Lossless())
    assert result.status == "same"
    assert len(after.inferences) == len(before.inferences) > 1


class Equal(Pass):
    tolerance = "equal"


def test_what_the_runtime_changes_when_it_loads_the_model_is_no_change_of_a_pass(tmp_path: Path) -> None:
    """The runtime joins two roundings to integers and keeps the finer one, which is what users had."""
    fine = "a = QuantizeLinear (x, fine, zero)\n {} = DequantizeLinear (a, fine, zero)"
    coarse = "c = QuantizeLinear (b, coarse, zero)\n y = DequantizeLinear (c, coarse, zero)"
    text = "g (float[n, 8] x) => (float[n, 8] y) {{ {} }}"
    weights = {"fine": np.float32(0.03), "zero": np.uint8(128)}
    twice = made(text.format(f"{fine.format('b')}\n {coarse}"), **weights, coarse=np.float32(0.5))
    models = [twice, made(text.format(fine.format("y")), **weights)]
    paths = [io.save(model, tmp_path / str(number)) for number, model in enumerate(models)]
    found, _ = compare(Reference(paths[0], models[0]), paths[1], models[1], Equal())
    assert (found.status, "optimization" in found.reason) == ("same", True)
    assert compare(Reference(paths[0], models[0]), paths[1], models[1], Lossless())[0].status == "different"


def compared_pair(pair: Pair, folder: Path) -> Any:
    """The result of the check on a pair of models, for a pass that promises equal results."""
    paths = [io.save(model, folder / str(number)) for number, model in enumerate(pair)]
    return compare(Reference(paths[0], pair[0]), paths[1], pair[1], Equal())[0]


@pytest.mark.parametrize("name", EQUAL)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_rewrites_that_only_round_differently_are_the_same(name: str, seed: int, tmp_path_factory: Any) -> None:
    result = compared_pair(EQUAL[name](np.random.default_rng(seed)), tmp_path_factory.mktemp("equal"))
    assert (result.status, result.reason) == ("same", "")


@pytest.mark.parametrize("name", WRONG)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_real_changes_are_different(name: str, seed: int, tmp_path_factory: Any) -> None:
    result = compared_pair(WRONG[name](np.random.default_rng(seed)), tmp_path_factory.mktemp("wrong"))
    assert result.status == "different"


WEIGHTS = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
SMALL = made("g (float[2, 64] x) => (float[2, 64] y) { y = MatMul (x, w) }", w=WEIGHTS)
LARGE = made(
    "g (float[2, 64] x) => (float[2, 64] y) { z = MatMul (x, w)\n y = Add (z, zero) }",
    w=WEIGHTS,
    zero=np.zeros((2, 64), np.float32),
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(LARGE, SMALL, "as they are"), (SMALL, LARGE, "as they are"), (SMALL, SMALL, "packed")],
    ids=["shrinks", "grows", "small"],
)
def test_both_models_of_a_comparison_pack_weights_or_neither(
    old: onnx.ModelProto, new: onnx.ModelProto, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_session(path: Path, *, packs_weights: bool, graph: bytes | None) -> ort.InferenceSession:
        session = make_plain_session(path, packs_weights=packs_weights, graph=graph)
        opened.append(prepacking(session))
        return session

    monkeypatch.setattr(equivalence, "PACKED_BYTES", WEIGHTS.nbytes)
    paths = [io.save(model, tmp_path / str(number)) for number, model in enumerate((old, new))]
    before = Reference(paths[0], old)
    before.run()
    monkeypatch.setattr(equivalence, "make_plain_session", open_session)
    result, after = compare(before, paths[1], new, Equal())
    again, _ = compare(after, paths[0], old, Equal())
    assert (result.status, again.status) == ("same", "same")
    assert set(opened) == {expected}


def prepacking(session: ort.InferenceSession) -> str:
    """How a session was told to treat weights."""
    try:
        value = session.get_session_options().get_session_config_entry("session.disable_prepacking")
    except RuntimeError:  # it was not told
        return "packed"
    return {"1": "as they are"}[value]


INVALID = "g (float[2, 4] x) => (float[2, 5] y) { y = MatMul (x, w) }"


class Exporter(Pass):
    """Makes a model from nothing."""

    def run(self, model: SourceFile) -> None: ...


class Widening(Pass):
    """Gives the model another input."""

    tolerance: ClassVar[Tolerance] = "lossless"

    def feeds(self, feeds: dict[str, Any]) -> dict[str, Any] | None:
        return {"renamed": feeds["x"]}


def verdict(
    folder: Path, before: onnx.ModelProto, after: onnx.ModelProto, pass_: Pass, elsewhere: bool = False
) -> CheckResult:
    reference = Reference(io.save(before, folder / "before"), before)
    return verify(reference, io.save(after, folder / "after"), after, pass_, elsewhere)[0]


def test_a_valid_model_has_no_defect(tmp_path: Path) -> None:
    assert find_defect(io.save(MODELS["mlp"](), tmp_path)) == ""


def test_an_operator_that_the_runtime_has_in_the_standard_domain_is_no_defect(tmp_path: Path) -> None:
    text = "g (float[2, 4] x, float[4] w) => (float[2, 4] y) {{ n = SimplifiedLayerNormalization (x, w) y = {} (n) }}"
    assert find_defect(io.save(made(text.format("Relu")), tmp_path / "good")) == ""
    assert "NoSuchOperator" in find_defect(io.save(made(text.format("NoSuchOperator")), tmp_path / "bad"))


def test_layer_normalization_before_its_opset_is_the_runtimes(tmp_path: Path) -> None:
    text = "g (float[2, 4] x, float[4] w) => (float[2, 4] y) { y = LayerNormalization (x, w) }"
    assert find_defect(io.save(made(text, opset=13), tmp_path)) == ""


def test_the_defect_of_an_invalid_model_is_one_line(tmp_path: Path) -> None:
    defect = find_defect(io.save(made(INVALID, w=normal(3, 5)), tmp_path))
    assert "MatMul" in defect
    assert "\n" not in defect


def test_ort_format_is_left_to_the_runtime(tmp_path: Path) -> None:
    path = tmp_path / "model.ort"
    path.write_bytes(b"not onnx")
    assert find_defect(path) == ""


def test_an_equal_model_is_accepted_with_its_findings(tmp_path: Path) -> None:
    result = verdict(tmp_path, MODELS["mlp"](), MODELS["mlp"](), Equal())
    assert result.problem == ""
    assert result.details["status"] == "same"
    assert result.details["max_abs_error"] == 0.0
    assert "checker" not in result.details


def test_a_new_defect_is_a_problem(tmp_path: Path) -> None:
    result = verdict(tmp_path, MODELS["relu_only"](), made(INVALID, w=normal(3, 5)), Equal())
    assert result.problem.startswith("the checker rejects the new model: ")
    assert result.details["checker"] in result.problem


def test_a_defect_of_the_input_model_is_not_blamed_on_the_pass(tmp_path: Path) -> None:
    invalid = made(INVALID, w=normal(3, 5))
    result = verdict(tmp_path, invalid, invalid, Equal())
    assert result.problem == ""
    assert result.details["checker"]
    assert result.details["status"] == "not run"


def test_a_pass_that_makes_a_model_answers_for_every_defect(tmp_path: Path) -> None:
    invalid = made(INVALID, w=normal(3, 5))
    assert verdict(tmp_path, invalid, invalid, Exporter()).problem


def test_other_outputs_are_a_problem(tmp_path: Path) -> None:
    other = made("g (float[N, 4] x) => (float[N, 4] y) { y = Neg (x) }")
    result = verdict(tmp_path, MODELS["relu_only"](), other, Equal())
    assert result.problem.startswith("not equivalent to its input: output 0: ")


def test_a_pass_maps_the_inputs_of_a_new_signature(tmp_path: Path) -> None:
    renamed = made("g (float[N, 4] renamed) => (float[N, 4] y) { y = Relu (renamed) }")
    assert verdict(tmp_path, MODELS["relu_only"](), renamed, Widening()).details["status"] == "same"
    assert verdict(tmp_path, MODELS["relu_only"](), renamed, Equal()).details["status"] == "only run"


@pytest.mark.parametrize(("elsewhere", "status"), [(False, "different"), (True, "not run")])
def test_operators_missing_on_the_cpu_count_only_for_the_cpu(tmp_path: Path, elsewhere: bool, status: str) -> None:
    unknown = made("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }")
    unknown.graph.node[0].domain = "com.microsoft"
    unknown.opset_import.add(domain="com.microsoft", version=1)
    result = verdict(tmp_path, MODELS["relu_only"](), unknown, Equal(), elsewhere)
    assert result.details["status"] == status
    assert bool(result.problem) == (status == "different")
