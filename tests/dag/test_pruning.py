"""Reasons against single passes: each rule alone, their precedence, and the reasons that only warn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoopt.dag.compiler.pruning import (
    Facts,
    Reason,
    check_model,
    check_pass,
    check_runtime,
    first_reason,
    prunes_idle,
    soft_reasons,
)
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.registry import PassInfo
from autoopt.target import Accelerator

MATMUL = Inspection((), (), {"": 17}, 8, {"MatMul": 3}, 10, 100)
CUDA = Accelerator("gpu", "CUDAExecutionProvider")


def info(**fields: Any) -> PassInfo:
    return PassInfo("p", "family", "summary", **fields)


def test_nothing_is_known_against_a_pass_without_demands() -> None:
    assert first_reason("n", info(), Facts()) is None
    assert soft_reasons(info(), Facts()) == []


def test_an_unavailable_pass_says_what_to_install() -> None:
    reason = check_pass(info(missing="nncf is not installed; pip install nncf"), Facts())
    assert reason == Reason("unavailable", "pass p is not available: nncf is not installed; pip install nncf")


def test_a_pass_for_other_providers_is_pruned_on_this_one() -> None:
    cuda_only = info(accelerators=("CUDAExecutionProvider",))
    assert check_pass(cuda_only, Facts(CUDA)) is None
    reason = check_pass(cuda_only, Facts())
    assert reason is not None
    assert reason.text == "pass p is for CUDAExecutionProvider, not for CPUExecutionProvider"


@pytest.mark.parametrize(
    ("installed", "text"),
    [
        (["X", "A"], "CUDAExecutionProvider is not in the installed runtime (it has A, X)"),
        ([], "CUDAExecutionProvider is not in the installed runtime (it has none)"),
    ],
)
def test_a_missing_provider_prunes_everything(installed: list[str], text: str) -> None:
    assert check_runtime(Facts(CUDA, installed_eps=installed)) == Reason("runtime", text)


def test_an_unknown_runtime_prunes_nothing() -> None:
    assert check_runtime(Facts(CUDA)) is None
    assert check_runtime(Facts(CUDA, installed_eps=["CUDAExecutionProvider"])) is None


def test_a_pass_needs_one_of_its_operators_in_the_model() -> None:
    facts = Facts(inspection=MATMUL)
    assert check_model(info(needs_ops=("Conv", "MatMul")), facts) is None
    functions = info(needs_ops=("local functions",))
    assert check_model(functions, facts) == Reason("inspection", "needs local functions; the model has none")
    with_traits = replace(MATMUL, functions=1, inputs=(ValueSpec("ids", "int64", (1,)),))
    for needed in (functions, info(needs_ops=("int64 inputs",))):
        assert check_model(needed, Facts(inspection=with_traits)) is None
    assert check_model(info(needs_ops=("Conv",)), Facts()) is None, "the model is unknown"
    one, several = (check_model(info(needs_ops=ops), facts) for ops in (("Conv",), ("Conv", "LSTM")))
    assert one == Reason("inspection", "needs Conv; the model has none")
    assert several == Reason("inspection", "needs one of Conv, LSTM; the model has none")


@pytest.mark.parametrize(
    ("tolerance", "proposed", "pruned"),
    [("lossy", False, True), ("equal", False, False), ("lossless", False, False), ("lossless", True, True)],
)
def test_an_idle_pass_prunes_a_chain_that_is_about_it(tolerance: Any, proposed: bool, pruned: bool) -> None:
    idle, facts = info(needs_ops=("Conv",), tolerance=tolerance), Facts(inspection=MATMUL, proposed=proposed)
    assert prunes_idle(idle, facts) == pruned
    assert (first_reason("n", idle, facts) is not None) == pruned


@pytest.mark.parametrize(
    ("fields", "lowest"),
    [
        ({"tolerance": "lossless"}, 0),
        ({"tolerance": "equal", "session_only": True}, 0),
        ({"tolerance": "equal"}, 1),
        ({"tolerance": "lossy"}, 2),
        ({"tolerance": "lossy", "needs_data": True}, 3),
    ],
)
def test_a_level_allows_passes_up_to_its_tolerance(fields: dict[str, Any], lowest: int) -> None:
    for level in range(4):
        reasons = soft_reasons(info(**fields), Facts(level=level))
        assert (not reasons) == (level >= lowest)
        assert all(reason.text.startswith(f"level {level} allows only ") for reason in reasons)


def test_level_and_missing_data_prune_only_proposed_graphs() -> None:
    calibrated, facts = info(tolerance="lossy", needs_data=True), Facts(level=2, has_calibration=False)
    assert [reason.rule for reason in soft_reasons(calibrated, facts)] == ["level", "no-data"]
    assert first_reason("n", calibrated, facts) is None
    reason = first_reason("n", calibrated, replace(facts, proposed=True))
    assert reason is not None
    assert reason.rule == "level"


def test_missing_data_is_a_reason_only_if_it_is_known_to_be_missing() -> None:
    calibrated = info(needs_data=True)
    assert soft_reasons(calibrated, Facts()) == soft_reasons(calibrated, Facts(has_calibration=True)) == []


def test_a_pass_that_refuses_an_operator_says_so_before_it_runs() -> None:
    """An earlier pass of the user's chain may remove the operator."""
    refusing = info(refuses_ops=("Loop", "MatMul"), tolerance="lossy")
    facts = Facts(inspection=MATMUL)
    reasons = soft_reasons(refusing, facts)
    assert reasons == [Reason("inspection", "cannot take MatMul, which the model has")]
    assert first_reason("n", refusing, facts) is None
    assert first_reason("n", refusing, replace(facts, proposed=True)) == reasons[0]
    assert soft_reasons(refusing, Facts()) == soft_reasons(info(refuses_ops=("Loop",)), facts) == []


def test_the_runtime_comes_before_the_pass_the_proposal_and_the_model() -> None:
    ruling = Reason("memory", "too large")
    worst = info(missing="x", needs_ops=("Conv",), tolerance="lossy")
    facts = Facts(CUDA, MATMUL, installed_eps=[], level=0, proposed=True, ruled_out={"n": ruling})
    rules = []
    for pass_info, known in [
        (worst, facts),
        (worst, replace(facts, installed_eps=None)),
        (replace(worst, missing=""), replace(facts, installed_eps=None)),
        (replace(worst, missing=""), replace(facts, installed_eps=None, ruled_out={"other": ruling})),
        (replace(worst, missing="", needs_ops=()), replace(facts, installed_eps=None, ruled_out={})),
    ]:
        reason = first_reason("n", pass_info, known)
        assert reason is not None
        rules.append(reason.rule)
    assert rules == ["runtime", "unavailable", "memory", "inspection", "level"]
