"""NestedSampler orders: inner passes are searched for each point of the outer ones."""

from __future__ import annotations

from dataclasses import replace

from search_cases import LATENCY, chain, drive, measure, text

from autoopt.search import Feedback, SearchConfig, create_study

THREE = chain("pass4", "pass2", "pass5")


def run(order, chains=(THREE,), outcome=measure, **config):
    made = SearchConfig(strategy="per-chain", **{"sampler": "exhaustive", "order": {"nested": order}, **config})
    strategy = create_study(made, chains, LATENCY)
    return drive(strategy, outcome=outcome), strategy


def test_inner_passes_are_searched_for_each_outer_point() -> None:
    asked, _ = run(["pass4", ["pass2", "pass5"]])
    assert all(p.upto is None for p in asked)
    assert [p.point["pass4"]["flag"] for p in asked] == [True] * 9 + [False] * 9
    assert len({text(p) for p in asked}) == 18


def test_the_outer_pass_need_not_come_first_in_the_chain() -> None:
    asked, _ = run(["pass5", ["pass4", "pass2"]])
    assert [p.point["pass5"]["mode"] for p in asked] == ["a"] * 6 + ["b"] * 6 + ["c"] * 6


def test_three_levels() -> None:
    asked, _ = run(["pass4", "pass2", "pass5"])
    assert len({text(p) for p in asked}) == 18
    for start in range(0, 18, 3):
        block = asked[start : start + 3]
        assert len({(p.point["pass4"]["flag"], p.point["pass2"]["mode"]) for p in block}) == 1


def test_a_budget_is_shared_out_over_outer_points() -> None:
    asked, _ = run(["pass4", ["pass2", "pass5"]], trials=8)
    assert [p.point["pass4"]["flag"] for p in asked] == [True] * 4 + [False] * 4


def test_an_outer_sampler_learns_from_the_best_inner_point() -> None:
    wide = chain("wide", "pass5")

    def outcome(proposal):
        return Feedback(
            {"latency_p50": proposal.point["wide"]["bits"] + "abc".index(proposal.point["pass5"]["mode"]) / 10}
        )

    asked, _ = run(["wide", "pass5"], (wide,), outcome, sampler="surrogate", trials=60, stop_early=False)
    # One outer point, with its three inner ones, after the other; those of one bit are the best.
    outer = [p.point["wide"]["bits"] for p in asked[::3]]
    best = sum(point["wide"]["bits"] == 1 for point in wide.space) // 3
    assert 0 < best < len(outer) / 3
    assert outer[: 2 * best].count(1) == best


def test_outer_points_that_leave_no_inner_point_are_skipped() -> None:
    cuts = tuple({"pass4": {"flag": True}, "pass5": {"mode": m}} for m in "abc")
    asked, strategy = run(["pass4", "pass5"], (chain("pass4", "pass5", cuts=cuts),))
    assert [p.point for p in asked] == [{"pass4": {"flag": False}, "pass5": {"mode": m}} for m in "abc"]
    assert strategy.finished


def test_failures_inside_are_values() -> None:
    asked, _ = run(["pass4", ["pass2", "pass5"]], outcome=lambda p: Feedback(failed=True), sampler="tpe")
    assert len(asked) == 18


def test_nested_resumes() -> None:
    order = {"nested": ["pass4", ["pass2", "pass5"]]}
    config = SearchConfig(strategy="per-chain", sampler="tpe", order=order, trials=14, seed=2)
    whole = drive(create_study(config, (THREE,), LATENCY))
    first = create_study(config, (THREE,), LATENCY)
    drive(first, limit=6)
    second = create_study(config, (THREE,), LATENCY)
    second.restore(first.trials)
    second.tell(5, measure(whole[5]))
    drive(second)
    assert [replace(t, feedback=None) for t in second.trials] == whole
