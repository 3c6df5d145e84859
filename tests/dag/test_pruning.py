"""Reasons against single passes: each rule alone, their precedence, and the reasons that only warn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoopt.dag.compiler.pruning import Facts, Reason, check_model, first_reason, soft_reasons
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.registry import PassInfo
from autoopt.target import Accelerator

MATMUL = Inspection((), (), {"": 17}, 8, {"MatMul": 3}, 10, 100)
CUDA = Accelerator("gpu", "CUDAExecutionProvider")


def info(**fields: Any) -> PassInfo:
    return PassInfo("p", "family", "summary", **fields)


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
    facts = Facts(CUDA, MATMUL, installed_eps={}, level=0, proposed=True, ruled_out={"n": ruling})
    rules = []
    for pass_info, known in [
        (worst, facts),
        (worst, replace(facts, installed_eps=None)),
        (replace(worst, missing=""), replace(facts, installed_eps=None)),
        (replace(worst, missing=""), replace(facts, installed_eps=None, ruled_out={"other": ruling})),
        (replace(worst, missing="", needs_ops=()), replace(facts, installed_eps=None, ruled_out={})),
    ]:
        reason = first_reason("n", pass_info, known)
        rules.append(reason.rule)
    assert rules == ["runtime", "unavailable", "memory", "inspection", "level"]
