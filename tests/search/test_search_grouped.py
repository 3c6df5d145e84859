"""Groups of chains that share the trials."""

from __future__ import annotations

from random import Random

from search_cases import LATENCY, SIX, drive

from autoopt.search.factory import create_study
from autoopt.search.history import History
from autoopt.search.samplers.base import WAIT, Decision, Stop
from autoopt.search.samplers.exhaustive import ExhaustiveSampler
from autoopt.search.samplers.per_chain import GroupedSampler
from autoopt.spec.search import SearchConfig


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
    decision = GroupedSampler([SIX[:1], SIX[1:2]], [Waiting(), ExhaustiveSampler(SIX[1])]).next(empty, Random(0))
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
