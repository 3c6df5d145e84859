"""A plan in a few lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autoopt.dag import Plan
from autoopt.dag.compiler.plan import Decision, Learned
from autoopt.engine.planning.explanations import explanations
from autoopt.engine.planning.plan import make_plan

SIX = Path(__file__).parents[2] / "dags" / "six_pass.yaml"


def plan() -> Plan:
    return make_plan(str(SIX))


def test_a_plan_of_the_users_own_needs_no_words() -> None:
    assert explanations(plan()) == []


def test_what_is_tried_is_one_line_and_details_are_left_to_the_plan() -> None:
    decisions = (
        Decision("threads", "trying 1 or 2", tried="1 or 2 threads"),
        Decision("int8", "trying dynamic quantization", tried="int8"),
        Decision("int4 not tried", "needs data"),
        Decision("IR upgrade", "old file", is_detail=True),
    )
    assert explanations(replace(plan(), decisions=decisions)) == [
        "trying 1 or 2 threads, int8",
        "int4 not tried: needs data",
    ]


def test_what_was_learned_is_one_short_line() -> None:
    points = [Learned("a", ("pass1", "pass2", "pass5"), {}, evidence="e" * 300), Learned("b", ("pass3", "pass6"), {})]
    assert explanations(replace(plan(), learned=tuple(points))) == [
        "starting with pass1 -> pass2 -> pass5 and 1 other point, the best on other models ('autoopt plan' says why)"
    ]
    known = Learned("a", ("pass1", "pass2", "pass5"), {}, expected=0.5)
    assert explanations(replace(plan(), learned=(known,))) == [
        "starting with pass1 -> pass2 -> pass5, the best in an earlier run of the same graph ('autoopt plan' says why)"
    ]
