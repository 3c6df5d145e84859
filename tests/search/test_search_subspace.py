"""A search over part of a chain."""

from __future__ import annotations

from random import Random

from search_cases import LATENCY, chain

from autoopt.search import Feedback
from autoopt.search.samplers.base import Suggestion
from autoopt.search.samplers.exhaustive import ExhaustiveSampler
from autoopt.search.samplers.subspace import SubspaceSampler, restrict_chain, restrict_point

WHOLE = chain(
    "pass2",
    "pass4",
    "pass5",
    cuts=({"pass2": {"mode": "a"}, "pass5": {"mode": "b"}}, {"pass5": {"mode": "c"}}),
    prior=({"pass2": {"mode": "a"}, "pass4": {"flag": True}, "pass5": {"mode": "b"}},),
)


def modes(part) -> list[object]:
    return [point["pass5"]["mode"] for point in part.space.iterate()]


def test_a_point_is_restricted_to_nodes() -> None:
    point = {"pass2": {"mode": "a"}, "pass5": {"mode": "b"}}
    assert restrict_point(point, ["pass5", "pass6"]) == {"pass5": {"mode": "b"}}


def test_cuts_hold_where_the_fixed_settings_agree() -> None:
    assert modes(restrict_chain(WHOLE, ["pass5"], {"pass2": {"mode": "a"}}, "x")) == ["a"]
    assert modes(restrict_chain(WHOLE, ["pass5"], {"pass2": {"mode": "b"}}, "x")) == ["a", "b"]
    assert modes(restrict_chain(WHOLE, ["pass5"], {}, "x")) == ["a", "b"]


def test_prior_points_are_kept_as_far_as_they_are_points_of_the_part() -> None:
    assert restrict_chain(WHOLE, ["pass4"], {}, "x").prior == ({"pass4": {"flag": True}},)
    assert restrict_chain(WHOLE, ["pass5"], {"pass2": {"mode": "a"}}, "x").prior == ()


def test_parts_with_different_starts_are_told_apart() -> None:
    first, second = (restrict_chain(WHOLE, ["pass4"], {}, name) for name in ("1", "2"))
    assert first.nodes != second.nodes
    assert first.nodes[1:] == second.nodes[1:] == ("pass4",)


def test_the_history_follows_that_of_the_whole_search() -> None:
    part = restrict_chain(WHOLE, ["pass4"], {}, "x")
    sampler = SubspaceSampler([part], LATENCY, ExhaustiveSampler(part))
    on, off = part.space.iterate()
    assert sampler.next(Random(0)) == Suggestion("x", on)
    sampler.follow([("x", on, None)])
    assert not sampler.exhausted
    assert sampler.next(Random(0)) == Suggestion("x", off)
    sampler.follow([("x", on, Feedback({"latency_p50": 1.0})), ("x", off, None)])
    assert sampler.exhausted
    assert [trial.feedback for trial in sampler.history.trials] == [Feedback({"latency_p50": 1.0}), None]
