"""Exhaustive search of one chain."""

from __future__ import annotations

from random import Random

from search_cases import LATENCY, SIX

from autoopt.search import Proposal
from autoopt.search.history import History
from autoopt.search.samplers.base import Stop, Suggestion
from autoopt.search.samplers.exhaustive import ExhaustiveSampler

CHAIN = SIX[5]


def test_points_come_in_order_without_those_that_were_asked() -> None:
    history = History([CHAIN], LATENCY)
    history.add(Proposal(0, CHAIN.id, CHAIN.space[1]))
    sampler = ExhaustiveSampler(CHAIN)
    for number, index in ((1, 0), (2, 2)):
        assert sampler.next(history, Random(0)) == Suggestion(CHAIN.id, CHAIN.space[index])
        history.add(Proposal(number, CHAIN.id, CHAIN.space[index]))
    assert sampler.next(history, Random(0)) == Stop("all 3 points tried")


def test_a_new_sampler_continues_from_the_history() -> None:
    history = History([CHAIN], LATENCY)
    history.add(Proposal(0, CHAIN.id, CHAIN.space[0]))
    assert ExhaustiveSampler(CHAIN).next(history, Random(0)) == Suggestion(CHAIN.id, CHAIN.space[1])
