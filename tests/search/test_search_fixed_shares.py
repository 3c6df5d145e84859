"""A search for each chain with a fixed share of the trials."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_cases import LATENCY, MIDDLE, SIX, chain, drive, measure

from autoopt.search import Feedback, SearchConfig, create_study
from autoopt.search.fixed_shares import trial_shares

ROUND_ROBIN = SearchConfig(strategy="per-chain", sampler="random")
SEQUENTIAL = ROUND_ROBIN.overridden({"allocation": "sequential"})


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.7]), min_size=1, max_size=6), st.integers(1, 60))
def test_shares_use_every_trial_and_follow_the_weights(weights: list[float], trials: int) -> None:
    nodes = list(SIX[0].nodes)
    chains = [chain(nodes[0], "wide", *nodes[1 : 1 + place % 3], weight=w) for place, w in enumerate(weights)]
    chains = list({each.id: each for each in chains}.values())
    shares = trial_shares(ROUND_ROBIN.overridden({"trials": trials}), chains)
    total = sum(each.space.count for each in chains)
    assert sum(shares.values()) == min(trials, total)
    for each in chains:
        assert shares[each.id] <= each.space.count
        for other in chains:
            if each.weight > other.weight and shares[each.id] < each.space.count:
                assert shares[each.id] >= shares[other.id]


def test_what_a_small_chain_leaves_goes_to_the_others() -> None:
    small, first, second = chain("pass4"), chain("wide"), chain("pass1", "wide")
    shares = trial_shares(ROUND_ROBIN.overridden({"trials": 40}), [small, first, second])
    assert shares == {small.id: 2, first.id: 19, second.id: 19}
    assert trial_shares(ROUND_ROBIN, [small]) == {small.id: 2}


@pytest.mark.parametrize("config", [ROUND_ROBIN, SEQUENTIAL], ids=["round_robin", "sequential"])
def test_a_chain_is_searched_as_if_it_were_alone(config: SearchConfig) -> None:
    config = config.overridden({"sampler": "tpe", "trials": 30})
    asked = drive(create_study(config, MIDDLE, LATENCY))
    assert len(asked) == 30
    for each in MIDDLE:
        points = [proposal.point for proposal in asked if proposal.chain == each.id]
        alone = create_study(config.overridden({"trials": len(points)}), [each], LATENCY)
        assert [proposal.point for proposal in drive(alone)] == points


def test_chains_with_equal_spaces_draw_different_points() -> None:
    first, second = chain("wide"), chain("pass1", "wide")
    asked = drive(create_study(ROUND_ROBIN.overridden({"trials": 20}), [first, second], LATENCY))
    points = {each.id: [p.point["wide"] for p in asked if p.chain == each.id] for each in (first, second)}
    assert points[first.id] != points[second.id]


@pytest.mark.parametrize("name", ["round_robin", "sequential", "successive_halving", "max_ucb", "unified"])
def test_a_chain_that_cannot_be_returned_to_gets_no_further_trial(name: str) -> None:
    config = SearchConfig(trials=20, stop_early=False)
    if name != "unified":
        config = SearchConfig(strategy="per-chain", sampler="random", allocation=name, trials=20)
    study = create_study(config, SIX, LATENCY)
    closed: set[str] = set()
    while proposals := study.ask():
        assert proposals[0].chain not in closed
        study.tell(proposals[0].number, measure(proposals[0]))
        closed.update(each.id for each in SIX if not study.may_return_to(each.id))
    assert len(closed) == len(SIX)


def test_sequential_chains_close_one_after_the_other() -> None:
    study = create_study(SEQUENTIAL.overridden({"trials": 6}), MIDDLE, LATENCY)
    open_chains = []
    while proposals := study.ask():
        study.tell(proposals[0].number, measure(proposals[0]))
        open_chains.append(sum(study.may_return_to(each.id) for each in MIDDLE))
    assert open_chains == [3, 2, 2, 1, 1, 0]


@pytest.mark.parametrize("config", [ROUND_ROBIN, SearchConfig(stop_early=False)], ids=["per-chain", "unified"])
def test_a_trial_under_way_may_turn_out_not_to_count(config: SearchConfig) -> None:
    study = create_study(config.overridden({"trials": 1}), [chain("wide")], LATENCY)
    study.ask()
    assert study.finished
    assert study.may_return_to("wide")
    study.tell(0, Feedback({"latency_p50": 1.0}, artifact="new"))
    assert not study.may_return_to("wide")


def test_successive_halving_closes_dropped_chains_before_the_search_is_over() -> None:
    chains = tuple(chain(*nodes) for nodes in (("wide",), ("pass1", "wide"), ("pass2", "wide"), ("pass4", "wide")))
    worth = {each.id: place + 1.0 for place, each in enumerate(chains)}
    config = SearchConfig(strategy="per-chain", sampler="random", allocation="successive_halving", trials=16)
    study = create_study(config, chains, LATENCY)
    for _ in range(2):
        for proposal in study.ask(8):
            study.tell(proposal.number, Feedback({"latency_p50": worth[proposal.chain]}))
        if len(study.trials) == 8:
            assert [study.may_return_to(each.id) for each in chains] == [True, True, False, False]
    assert study.finished


def test_a_chain_without_a_share_is_never_opened() -> None:
    study = create_study(ROUND_ROBIN.overridden({"trials": 2}), SIX, LATENCY)
    assert [study.may_return_to(each.id) for each in SIX] == [True, True, False, False, False, False]
    assert Counter(proposal.chain for proposal in drive(study)) == {SIX[0].id: 1, SIX[1].id: 1}
    assert study.finished == "trial limit of 2 reached"


def test_a_chain_that_repeats_the_model_of_another_one_gets_another_trial() -> None:
    config = ROUND_ROBIN.overridden({"trials": 4})
    batches = []
    for backwards in (False, True):
        study = create_study(config, (chain("wide"), chain("pass1", "wide")), LATENCY)
        asked = study.ask(4)
        for proposal in asked[::-1] if backwards else asked:
            study.tell(proposal.number, Feedback({"latency_p50": 1.0}, artifact=str(proposal.number // 2)))
        batches.append(study.ask(4))
    assert {proposal.chain for proposal in batches[0]} == {"pass1>wide"}
    assert len(batches[0]) == 2
    assert batches[0] == batches[1]
    assert study.finished == "trial limit of 4 reached; 2 trials that repeated a known model did not count"


def test_a_search_that_tried_every_point_says_so() -> None:
    study = create_study(ROUND_ROBIN, SIX, LATENCY)
    drive(study, window=24, outcome=lambda p: Feedback({"latency_p50": 1.0}, artifact="source"))
    assert len(study.trials) == 24
    assert study.finished == "all points tried"
