"""Groups of chains that share the trials."""

from __future__ import annotations

from random import Random

from search_cases import LATENCY, SIX, drive

from autoopt.search.factory import create_study
from autoopt.search.history import History
from autoopt.search.samplers.base import STOPPED_EARLY, WAIT, Decision, Stop
from autoopt.search.samplers.exhaustive import ExhaustiveSampler
from autoopt.search.samplers.grouped import GroupedSampler
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
        def __init__(self, reason: str) -> None:
            self._decision = Stop(reason)

        def next(self, history: History, rng: Random) -> Decision:
            return self._decision

    def reason(*reasons: str) -> Decision:
        sampler = GroupedSampler([SIX[:1], SIX[1:2]], [Stopped(reason) for reason in reasons])
        return sampler.next(History(SIX[:2], LATENCY), Random(0))

    early = [f"{STOPPED_EARLY}at most 1 % more", f"{STOPPED_EARLY}less than 2 %"]
    assert reason(*early) == Stop(f"{STOPPED_EARLY}at most 1 % more; less than 2 %")
    assert reason(early[0], early[0]) == Stop(early[0])
    assert reason("all points tried", early[0]) == Stop(f"all points tried; {early[0]}")
