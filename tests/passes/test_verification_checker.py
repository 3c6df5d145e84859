"""The checks after every pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import onnx
import pytest
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.passes.base import Pass, SourceFile
from autoopt.passes.verification.checker import CheckResult, find_defect, verify
from autoopt.passes.verification.equivalence import Reference
from autoopt.registry import Tolerance

INVALID = "g (float[2, 4] x) => (float[2, 5] y) { y = MatMul (x, w) }"


class Equal(Pass):
    """Promises equal outputs."""


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
