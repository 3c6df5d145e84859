"""The sampler `surrogate` beyond what every strategy does: large spaces, equals, settings at run time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from search_cases import BOTH, LATENCY, MIDDLE, SIX, chain, drive, found, measure, text

from autoopt.search import ChainSpace, Feedback, Proposal, SearchConfig, create_study
from autoopt.search.history import FAILED, History
from autoopt.search.samplers.base import SamplerInputs, Stop, Suggestion
from autoopt.search.samplers.surrogate import SurrogateSampler, cheapest, uncached_suffix, with_first_settings
from autoopt.space import Boolean, Categorical, Integer, NodeSpace, Point, SearchSpace

BIG = NodeSpace({f"x{i}": Categorical(*range(7)) for i in range(3)})
LARGE = tuple(
    ChainSpace(">".join(nodes), tuple((n, n) for n in nodes), SearchSpace(dict.fromkeys(nodes, BIG), cuts))
    for nodes, cuts in ((("p", "q"), ({"p": {"x0": 0}},)), (("q",), ()), (("p", "q", "r", "s"), ()))
)


def distance(proposal) -> Feedback:
    """Best where every setting is 5."""
    values = [v for settings in proposal.point.values() for v in settings.values()]
    return Feedback({"latency_p50": 1 + sum(abs(v - 5) for v in values) / len(values)})


def test_spaces_too_large_to_enumerate_are_searched() -> None:
    assert sum(c.space.count for c in LARGE) > 10**10
    asked = drive(create_study(SearchConfig(trials=16), LARGE, LATENCY), outcome=distance)
    assert len({text(p) for p in asked}) == 16
    for proposal in asked:
        next(c for c in LARGE if c.id == proposal.chain).space.index(proposal.point)
    assert found(asked[8:], distance) < found(asked[:8], distance)


def test_chains_without_a_trial_get_some_in_large_spaces() -> None:
    names = [(first, last) for first in "pqrs" for last in "tuvw"]
    chains = [
        ChainSpace(">".join(nodes), tuple((n, n) for n in nodes), SearchSpace(dict.fromkeys(nodes, BIG)))
        for nodes in names
    ]
    asked = drive(create_study(SearchConfig(trials=13), chains, LATENCY), outcome=distance)
    begun: list[set[str]] = [{proposal.chain for proposal in asked[:number]} for number in range(len(asked))]
    assert all(asked[number].chain not in begun[number] for number in (9, 12))


def test_large_spaces_resume() -> None:
    config = SearchConfig(trials=8, seed=5)
    whole = drive(create_study(config, LARGE, LATENCY), outcome=distance)
    first = create_study(config, LARGE, LATENCY)
    drive(first, limit=6, outcome=distance)
    second = create_study(config, LARGE, LATENCY)
    second.restore(first.trials)
    second.tell(5, distance(whole[5]))
    drive(second, outcome=distance)
    assert [replace(t, feedback=None) for t in second.trials] == whole


def test_among_equals_what_is_already_measured_goes_first() -> None:
    """All points give the same, so all are equals; those with an even key are known."""

    def cost(chain_id: str, point: dict) -> tuple[bool, int]:
        return sum(map(ord, repr(point))) % 2 == 0, 1

    same = lambda p: Feedback({"latency_p50": 1.0})  # noqa: E731
    asked = drive(create_study(SearchConfig(trials=20), MIDDLE, LATENCY, cost=cost), outcome=same)
    plain = drive(create_study(SearchConfig(trials=20), MIDDLE, LATENCY), outcome=same)
    free = [sum(cost(p.chain, p.point)[0] for p in run[8:]) for run in (asked, plain)]
    assert free[0] > free[1]


def test_weights_draw_the_search() -> None:
    heavy = [chain("pass1", "wide", weight=5.0), chain("pass3", "wide")]
    asked = drive(
        create_study(SearchConfig(trials=30, stop_early=False), heavy, LATENCY),
        outcome=lambda p: Feedback({"latency_p50": 1.0 + len(text(p)) % 7}),
    )
    assert sum(p.chain == heavy[0].id for p in asked) > 18


@pytest.mark.parametrize("seed", [1, 3])
def test_a_search_without_gains_looks_where_its_model_expects_little(seed: int) -> None:
    """The only fast value of a pass is among slow ones, beside many points that differ by little."""
    even = {"x": Integer(1, 8), "y": Integer(1, 8)}
    nodes = {"even": NodeSpace(even), "more": NodeSpace({"z": Integer(1, 4)})}
    odd = NodeSpace({"mode": Categorical("a", "b", "c", "d")})
    chains = [
        ChainSpace("both", (("even", "even"), ("more", "more")), SearchSpace(nodes)),
        ChainSpace("even", (("even", "even"),), SearchSpace({"even": nodes["even"]})),
        ChainSpace("odd", (("odd", "odd"),), SearchSpace({"odd": odd})),
    ]

    def outcome(proposal: Proposal) -> Feedback:
        point = proposal.point
        if "odd" in point:
            return Feedback({"latency_p50": 0.3 if point["odd"]["mode"] == "d" else 2.0})
        latency = 1 + 0.02 * abs(point["even"]["x"] - 3) + 0.02 * abs(point["even"]["y"] - 5)
        return Feedback({"latency_p50": latency + 0.01 * point.get("more", {"z": 0})["z"]})

    study = create_study(SearchConfig(seed=seed, trials=53, stop_early=False), chains, LATENCY)
    asked = drive(study, outcome=outcome)
    assert min(outcome(proposal).values["latency_p50"] for proposal in asked) == 0.3


def run(chains, outcome=measure, trials: int = 100, **options) -> tuple[list[Proposal], str]:
    config = SearchConfig(seed=1, stop_early=False, **options)
    sampler = SurrogateSampler(SamplerInputs(config, tuple(chains), LATENCY, budget=24))
    history = History(chains, LATENCY)
    for number in range(trials):
        decision = sampler.next(history, Random(number))
        if isinstance(decision, Stop):
            return list(history.trials), decision.reason
        assert isinstance(decision, Suggestion)
        history.add(Proposal(number, decision.chain, decision.point))
        history.tell(number, outcome(history.trials[-1]))
    return list(history.trials), ""


def test_points_that_share_a_failing_pass_are_not_said_to_be_tried() -> None:
    asked, reason = run(SIX, lambda proposal: Feedback(failed=True, path=(FAILED,)))
    assert len(asked) == 1
    assert reason == "1 of 24 points tried: the others fail or repeat known models like them"


def test_points_that_promise_to_be_infeasible_come_late() -> None:
    def outcome(proposal: Proposal) -> Feedback:
        broken = "pass3" in proposal.chain
        return Feedback({"latency_p50": 1.0}, violation=1.0 if broken else -1.0)

    asked, _ = run(SIX, outcome)
    places = [place for place, proposal in enumerate(asked) if "pass3" in proposal.chain]
    assert sum(places) / len(places) > 12


NODE_SPACES = {
    "a": NodeSpace({"x": Categorical(*range(12))}),
    "session": NodeSpace({"default": Boolean(), "level": Categorical("all", "basic")}),
}
CUTS = ({"session": {"default": True, "level": "all"}},)
FIRST = {"default": True, "level": "basic"}
SLOW = {"a": {"x": 11}, "session": {"default": False, "level": "basic"}}


def _chain(prior: Point, *, sets_only_run: bool = False) -> ChainSpace:
    space = SearchSpace({node: NODE_SPACES[node] for node in prior}, CUTS)
    passes = tuple((node, node) for node in prior)
    return ChainSpace(">".join(prior), passes, space, prior=(prior,), sets_only_run=sets_only_run)


CHAINS = [_chain({"a": {"x": 5}}), _chain(SLOW, sets_only_run=True)]


def _points(factor: float, violation: float = 0.0) -> list[Point]:
    """The first points of a search in which settings change the latency by a factor."""

    def outcome(proposal: Proposal) -> Feedback:
        latency = (1.0 + proposal.point["a"]["x"]) * (factor if "session" in proposal.point else 1.0)
        return Feedback({"latency_p50": latency}, violation)

    study = create_study(SearchConfig(trials=14, stop_early=False), CHAINS, LATENCY)
    return [proposal.point for proposal in drive(study, limit=8, outcome=outcome)]


def test_the_best_point_is_tried_with_the_first_settings_that_are_allowed() -> None:
    assert _points(0.9)[:3] == [{"a": {"x": 5}}, SLOW, {"a": {"x": 5}, "session": FIRST}]


def test_settings_that_lost_twice_are_not_tried_on_the_next_best() -> None:
    points = _points(1.5)
    assert {"a": {"x": 0}} in points
    assert {"a": {"x": 0}, "session": FIRST} not in points


def test_a_candidate_that_breaks_a_constraint_is_not_tried_with_settings() -> None:
    assert {"a": {"x": 5}, "session": FIRST} not in _points(0.9, violation=1.0)[:3]


def test_settings_come_first_for_one_objective_only() -> None:
    chain, with_settings = CHAINS
    suggested: list[bool] = []
    for objectives in (LATENCY, BOTH):
        history = History(CHAINS, objectives)
        history.add(Proposal(0, chain.id, chain.prior[0]))
        history.tell(0, Feedback({"latency_p50": 1.0, "accuracy": 0.9}))
        suggested.append(with_first_settings(CHAINS, history) == (with_settings.id, {"a": {"x": 5}, "session": FIRST}))
    assert suggested == [True, False]


LONG, SHORT = SIX[0], SIX[5]
POINTS = [(LONG.id, point) for point in LONG.space.iterate()]


@pytest.fixture
def history() -> History:
    """One finished trial of the first point of the long chain."""
    history = History(SIX, LATENCY)
    history.add(Proposal(0, *POINTS[0]))
    history.tell(0, Feedback({"latency_p50": 1.0}))
    return history


def test_among_equals_the_least_new_work_wins(history: History) -> None:
    for seed in range(10):
        chain, point = cheapest(POINTS[1:], [0.0] * 8, history, None, Random(seed))
        assert uncached_suffix(history, chain, point) == 1  # pass1 and pass2 ran with the same settings


def test_among_equals_a_measured_candidate_wins_over_less_work(history: History) -> None:
    def cost(chain: str, point: object) -> tuple[bool, int]:
        return point == POINTS[8][1], 3

    assert cheapest(POINTS, [0.0] * 9, history, cost, Random(0)) == POINTS[8]


def test_work_counts_from_where_finished_trials_differ(history: History) -> None:
    assert uncached_suffix(history, *POINTS[0]) == 0
    other = {"pass2": {"mode": "b"}, "pass5": {"mode": "a"}}
    assert uncached_suffix(history, LONG.id, other) == 2
    assert uncached_suffix(history, SHORT.id, {"pass5": {"mode": "a"}}) == 1
    history.add(Proposal(1, LONG.id, other))
    assert uncached_suffix(history, LONG.id, other) == 2, "a running trial has cached nothing yet"
