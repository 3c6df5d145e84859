"""The unified search beyond what every strategy does: large spaces, equals, what is already known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from search_cases import BOTH, LATENCY, MIDDLE, SIX, chain, drive, found, measure, text

from autoopt.search import ChainSpace, Feedback, Proposal, SearchConfig, create_study
from autoopt.search.samplers.initial_points import initial_points
from autoopt.space import Categorical, Integer, NodeSpace, SearchSpace

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
    asked = drive(create_study(SearchConfig(trials=20), LARGE, LATENCY), outcome=distance)
    assert len({text(p) for p in asked}) == 20
    for proposal in asked:
        next(c for c in LARGE if c.id == proposal.chain).space.index(proposal.point)
    assert found(asked[10:], distance) < found(asked[:10], distance)


def test_chains_without_a_trial_get_some_in_large_spaces() -> None:
    names = [(first, last) for first in "pqrs" for last in "tuvw"]
    chains = [
        ChainSpace(">".join(nodes), tuple((n, n) for n in nodes), SearchSpace(dict.fromkeys(nodes, BIG)))
        for nodes in names
    ]
    asked = drive(create_study(SearchConfig(trials=16), chains, LATENCY), outcome=distance)
    begun: list[set[str]] = [{proposal.chain for proposal in asked[:number]} for number in range(len(asked))]
    assert all(asked[number].chain not in begun[number] for number in (9, 12, 15))


def test_large_spaces_resume() -> None:
    config = SearchConfig(trials=10, seed=5)
    whole = drive(create_study(config, LARGE, LATENCY), outcome=distance)
    first = create_study(config, LARGE, LATENCY)
    drive(first, limit=7, outcome=distance)
    second = create_study(config, LARGE, LATENCY)
    second.restore(first.trials)
    second.tell(6, distance(whole[6]))
    drive(second, outcome=distance)
    assert [t.proposal for t in second.trials] == whole


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


def test_with_several_objectives_and_prior_points_the_models_take_over_after_two_results() -> None:
    chains = [replace(SIX[0], prior=(SIX[0].space[0],)), *SIX[1:]]

    def asked(outcome) -> list[tuple[str, object]]:
        proposals = drive(create_study(SearchConfig(trials=6), chains, BOTH), outcome=outcome)
        return [(proposal.chain, proposal.point) for proposal in proposals]

    initial = initial_points(chains, 6, seed=SearchConfig().seed)
    assert len(initial) == 6
    assert asked(lambda _: Feedback({"latency_p50": 1.0})) == initial
    known = asked(measure)
    assert known[:2] == initial[:2]
    assert known != initial
