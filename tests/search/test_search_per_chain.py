"""The chain of the next trial, and groups of chains that share the trials."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from search_cases import LATENCY, SIX, chain, drive

from autoopt.search import Feedback, Proposal, SearchConfig, create_study
from autoopt.search.history import History
from autoopt.search.samplers.base import WAIT, Decision, SamplerInputs, Stop
from autoopt.search.samplers.per_chain import GroupedSampler, scaled_rewards
from autoopt.search.samplers.plain import ExhaustiveSampler

CHAINS = tuple(chain(*nodes) for nodes in (("wide",), ("pass1", "wide"), ("pass2", "wide"), ("pass4", "wide")))
WORTH = {c.id: place + 1.0 for place, c in enumerate(CHAINS)}


def shares(allocation, chains=CHAINS, trials: int = 40) -> tuple[Counter, list[str]]:
    config = SearchConfig(strategy="per-chain", sampler="random", allocation=allocation, trials=trials)
    strategy = create_study(config, chains, LATENCY)
    order = []
    while proposals := strategy.ask():
        order.append(proposals[0].chain)
        strategy.tell(proposals[0].number, Feedback({"latency_p50": WORTH[proposals[0].chain]}))
    return Counter(order), order


def test_sequential_gives_equal_shares_one_after_the_other() -> None:
    counts, order = shares("sequential")
    assert set(counts.values()) == {10}
    assert order == sorted(order, key=[c.id for c in CHAINS].index)


def test_sequential_hands_on_what_a_small_chain_leaves() -> None:
    chains = (chain("pass4"), *CHAINS[:2])
    WORTH["pass4"] = 1.0
    counts, _ = shares("sequential", chains, 40)
    assert counts["pass4"] == 2
    assert sorted(counts.values()) == [2, 19, 19]


def test_round_robin_takes_turns_and_weight_gives_more_turns() -> None:
    _, order = shares("round_robin")
    for start in range(0, 40, 4):
        assert len(set(order[start : start + 4])) == 4
    weighted = (chain("wide", weight=3.0), *CHAINS[1:2])
    counts, _ = shares("round_robin", weighted, 40)
    assert counts["wide"] == 30


def test_successive_halving_leaves_the_best() -> None:
    counts, order = shares("successive_halving")
    best = CHAINS[0].id
    assert counts[best] == max(counts.values())
    assert set(order[:20]) == {c.id for c in CHAINS}
    assert set(order[20:]) == {CHAINS[0].id, CHAINS[1].id}


def test_successive_halving_waits_for_running_trials_before_it_drops_a_chain() -> None:
    config = SearchConfig(strategy="per-chain", sampler="random", allocation="successive_halving", trials=16)
    strategy = create_study(config, CHAINS, LATENCY)
    asked = strategy.ask(16)
    assert len(asked) == 8
    assert strategy.ask() == []
    assert strategy.finished is None
    for proposal in asked:
        strategy.tell(proposal.number, Feedback({"latency_p50": WORTH[proposal.chain]}))
    assert len(strategy.ask(16)) == 8


def test_max_ucb_tries_each_chain_once_then_favours_the_best() -> None:
    counts, order = shares("max_ucb")
    assert set(order[:4]) == {c.id for c in CHAINS}
    assert counts[CHAINS[0].id] > counts[CHAINS[3].id]


@pytest.mark.parametrize("allocation", ["sequential", "round_robin", "successive_halving", "max_ucb"])
def test_every_trial_of_the_budget_is_used(allocation) -> None:
    counts, _ = shares(allocation, trials=37)
    assert sum(counts.values()) == 37


def test_rewards_are_scaled_from_worst_to_best() -> None:
    history = History(CHAINS, LATENCY)
    outcomes = [
        Feedback({"latency_p50": 1.0}),
        Feedback({"latency_p50": 100.0}),
        Feedback({"latency_p50": 10.0}),
        Feedback({"latency_p50": 0.1}, violation=1.0),
        Feedback(failed=True),
    ]
    for number, feedback in enumerate(outcomes):
        history.add(Proposal(number, "wide", CHAINS[0].space[number]))
        history.tell(number, feedback)
    history.add(Proposal(5, "wide", CHAINS[0].space[5]))
    rewards = scaled_rewards(history)
    assert rewards[0] == 1
    assert math.isclose(rewards[2], 0.5)
    assert rewards[1] == rewards[3] == rewards[4] == rewards[5] == 0


class Waiting:
    def next(self, history: History, rng: Random) -> Decision:
        return WAIT


def test_groups_get_the_same_number_of_trials_until_one_is_exhausted() -> None:
    apart = {SIX[0].id}
    study = create_study(SearchConfig(trials=10), SIX, LATENCY, apart=apart)
    asked = drive(study)
    assert [proposal.chain in apart for proposal in asked[:8]].count(True) == 4
    whole = drive(create_study(SearchConfig(stop_early=False), SIX, LATENCY, apart=apart))
    assert len(whole) == sum(chain.space.count for chain in SIX)


def test_it_waits_for_a_group_that_waits_and_stops_when_all_are_exhausted() -> None:
    empty = History(SIX[:2], LATENCY)
    assert GroupedSampler([SIX[:1], SIX[1:2]], [Waiting(), Waiting()]).next(empty, Random(0)) is WAIT

    class Exhausted:
        def next(self, history: History, rng: Random) -> Decision:
            return Stop("all 3 points tried")

    assert GroupedSampler([SIX[:1], SIX[1:2]], [Exhausted(), Exhausted()]).next(empty, Random(0)) == Stop(
        "all 3 points tried"
    )
    decision = GroupedSampler(
        [SIX[:1], SIX[1:2]], [Waiting(), ExhaustiveSampler(SamplerInputs(SearchConfig(), SIX[1:2], LATENCY, 24))]
    ).next(empty, Random(0))
    assert decision.chain == SIX[1].id


def test_groups_that_stopped_early_say_so_once() -> None:
    class Stopped:
        def __init__(self, decision: Stop) -> None:
            self._decision = decision

        def next(self, history: History, rng: Random) -> Decision:
            return self._decision

    def joint(*stops: Stop) -> Decision:
        sampler = GroupedSampler([SIX[:1], SIX[1:2]], list(map(Stopped, stops)))
        return sampler.next(History(SIX[:2], LATENCY), Random(0))

    early = Stop("at most 1 % more", is_early=True)
    both = joint(early, Stop("less than 2 %", is_early=True))
    assert both == Stop("at most 1 % more; less than 2 %", is_early=True)
    assert both.text == "stopped early: at most 1 % more; less than 2 %"
    assert joint(early, early) == early
    assert joint(Stop("all points tried"), early) == Stop(f"all points tried; {early.text}")
