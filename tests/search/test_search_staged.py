"""Pass by pass and groups: partial chains, and what they hand on."""

from __future__ import annotations

import pytest
from search_cases import LATENCY, SIX, chain, drive, measure, text

from autoopt.metrics import Objective
from autoopt.search import Feedback, SearchConfig, create_study
from autoopt.tuning import STOPPING

TWO = chain("pass2", "pass5")


def run(chains, outcome=measure, window=1, node_objectives=None, **config):
    made = SearchConfig(strategy="per-chain", **{"sampler": "exhaustive", "order": "pass-by-pass", **config})
    strategy = create_study(made, chains, LATENCY, node_objectives=node_objectives)
    return drive(strategy, outcome=outcome, window=window), strategy


def prefers(letters: str):
    """Pass 2 is best with the first of `letters`; pass 5 with the first too."""

    def outcome(proposal):
        places = [letters.index(v["mode"]) + 1.0 for v in proposal.point.values()]
        return Feedback({"latency_p50": sum(places)})

    return outcome


def test_the_best_of_a_pass_is_where_the_next_one_starts() -> None:
    asked, _ = run([TWO], prefers("bca"))
    assert [(p.upto, p.point) for p in asked] == [
        ("pass2", {"pass2": {"mode": "a"}}),
        ("pass2", {"pass2": {"mode": "b"}}),
        ("pass2", {"pass2": {"mode": "c"}}),
        (None, {"pass2": {"mode": "b"}, "pass5": {"mode": "a"}}),
        (None, {"pass2": {"mode": "b"}, "pass5": {"mode": "b"}}),
        (None, {"pass2": {"mode": "b"}, "pass5": {"mode": "c"}}),
    ]


def test_keeps_the_k_best() -> None:
    asked, _ = run([TWO], prefers("bca"), keep=2)
    starts = {p.point["pass2"]["mode"] for p in asked if p.upto is None}
    assert starts == {"b", "c"}
    assert len(asked) == 3 + 6


def test_a_stage_without_a_choice_is_not_measured() -> None:
    asked, _ = run([chain("pass1", "pass3", "pass5")])
    assert [p.upto for p in asked] == [None] * 3
    asked, _ = run([TWO], keep=3)
    assert [p.upto for p in asked] == [None] * 9


def test_failed_trials_do_not_end_it() -> None:
    asked, _ = run([TWO], lambda p: Feedback(failed=True) if p.number in (0, 3) else prefers("abc")(p))
    assert [p.upto for p in asked] == ["pass2"] * 3 + [None] * 3
    assert {p.point["pass2"]["mode"] for p in asked[3:]} == {"b"}


def test_a_stage_in_which_nothing_works_ends_the_chain_only() -> None:
    asked, strategy = run([TWO, chain("pass4")], lambda p: Feedback(failed=p.upto == "pass2") if p.upto else measure(p))
    assert sum(p.chain == TWO.id for p in asked) == 3
    assert sum(p.chain == "pass4" for p in asked) == 2
    assert strategy.finished == "all points tried"


def test_a_short_budget_still_reaches_whole_chains() -> None:
    asked, _ = run([TWO], trials=4)
    assert [p.upto for p in asked] == ["pass2", "pass2", None, None]


@pytest.mark.parametrize("trials", range(1, 12))
def test_a_budget_however_small_reaches_whole_chains(trials: int) -> None:
    asked, _ = run(SIX, trials=trials, sampler="random")
    assert len(asked) == trials
    assert any(p.upto is None for p in asked)


def test_a_chain_of_little_weight_comes_to_its_end_too() -> None:
    chains = [chain("pass2", "pass5", weight=2.0), chain("pass4", "wide")]
    asked, _ = run(chains, trials=9, sampler="random")
    assert {p.chain for p in asked if p.upto is None} == {c.id for c in chains}


def test_without_a_number_of_trials_early_stages_leave_time_for_the_last() -> None:
    wide = chain("wide", "pass5")
    asked, _ = run([wide], sampler="random", minutes=1.0)
    enough = STOPPING.min_candidates
    assert [p.upto for p in asked[: enough + 2]] == ["wide"] * enough + [None] * 2


def test_a_group_in_the_middle_may_nest() -> None:
    long = chain("pass2", "pass4", "pass5")
    asked, _ = run([long], prefers_last, order=["pass2", {"nested": ["pass4", "pass5"]}])
    assert [p.upto for p in asked] == ["pass2"] * 3 + [None] * 6
    assert [p.point["pass4"]["flag"] for p in asked[3:]] == [True] * 3 + [False] * 3
    assert len({text(p) for p in asked}) == 9
    asked, _ = run([long], prefers_last, order=[{"nested": ["pass4", "pass2"]}, "pass5"], keep=2)
    assert [p.upto for p in asked] == ["pass4"] * 6 + [None] * 6
    assert [p.point["pass4"]["flag"] for p in asked[:6]] == [True] * 3 + [False] * 3


def prefers_last(proposal):
    return Feedback({"latency_p50": sum(5.0 - "abc".index(v["mode"]) for v in proposal.point.values() if "mode" in v)})


def test_a_stage_goes_on_beyond_its_share_until_something_works() -> None:
    asked, _ = run([TWO], lambda p: Feedback(failed=True) if p.number < 2 else measure(p), trials=4)
    assert [p.upto for p in asked] == ["pass2", "pass2", "pass2", None]


def test_waits_for_the_running_trials_of_a_stage() -> None:
    strategy = create_study(
        SearchConfig(strategy="per-chain", sampler="exhaustive", order="pass-by-pass"), [TWO], LATENCY
    )
    asked = strategy.ask(9)
    assert len(asked) == 3
    assert strategy.ask() == []
    assert strategy.finished is None
    for proposal in asked:
        strategy.tell(proposal.number, measure(proposal))
    assert [p.upto for p in strategy.ask(9)] == [None] * 3


def test_chains_with_the_same_beginning_share_its_trials() -> None:
    asked, _ = run(SIX)
    partial = [p.point for p in asked if p.upto is not None]
    assert sorted(map(str, partial)) == sorted(
        map(str, [{"pass2": {"mode": m}} for m in "abc"] + [{"pass4": {"flag": f}} for f in (True, False)])
    )
    whole = [p for p in asked if p.upto is None]
    assert {p.chain for p in whole} == {c.id for c in SIX}
    assert len(whole) == 3 + 3 + 1 + 3 + 1 + 3


def test_groups_are_searched_together() -> None:
    chains = [chain("pass2", "pass4", "pass5")]
    asked, _ = run(chains, order=[["pass2", "pass4"], "pass5"])
    assert [p.upto for p in asked] == ["pass4"] * 6 + [None] * 3


def test_a_node_may_be_judged_by_metrics_of_its_own() -> None:
    own = {"pass2": (Objective("size", "minimize"),)}

    def outcome(proposal):
        mode = proposal.point["pass2"]["mode"]
        return Feedback({"latency_p50": "abc".index(mode) + 1.0, "size": "cba".index(mode) + 1.0})

    asked, _ = run([TWO], outcome, node_objectives=own)
    assert {p.point["pass2"]["mode"] for p in asked if p.upto is None} == {"c"}


def test_feasible_partial_chains_go_first() -> None:
    def outcome(proposal):
        fast = proposal.point["pass2"]["mode"] == "a"
        return Feedback({"latency_p50": 1.0 if fast else 2.0}, violation=0.5 if fast else -0.5)

    asked, _ = run([TWO], outcome)
    assert {p.point["pass2"]["mode"] for p in asked if p.upto is None} == {"b"}


@pytest.mark.parametrize("window", [1, 3])
def test_cuts_across_stages_hold(window: int) -> None:
    cuts = ({"pass2": {"mode": "b"}, "pass5": {"mode": "a"}},)
    asked, _ = run([chain("pass2", "pass5", cuts=cuts)], prefers("bca"), window=window)
    whole = [p.point for p in asked if p.upto is None]
    assert [w["pass5"]["mode"] for w in whole] == ["b", "c"]


def test_cuts_that_leave_nothing_end_the_chain() -> None:
    cuts = tuple({"pass2": {"mode": "b"}, "pass5": {"mode": m}} for m in "abc")
    asked, strategy = run([chain("pass2", "pass5", cuts=cuts)], prefers("bca"))
    assert all(p.upto for p in asked)
    assert strategy.finished
