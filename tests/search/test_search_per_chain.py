"""A sampler for each chain."""

from __future__ import annotations

from random import Random

from search_cases import LATENCY, SIX

from autoopt.search.history import History
from autoopt.search.samplers.allocation import round_robin
from autoopt.search.samplers.base import WAIT, Decision, Stop, Suggestion
from autoopt.search.samplers.exhaustive import ExhaustiveSampler
from autoopt.search.samplers.per_chain import PerChainSampler

CHAINS = SIX[4:]


class Waiting:
    def next(self, history: History, rng: Random) -> Decision:
        return WAIT


def test_a_chain_that_waits_lets_the_others_go_first() -> None:
    def create(chain):
        return Waiting() if chain is CHAINS[0] else ExhaustiveSampler(chain)

    sampler = PerChainSampler(CHAINS, create, round_robin, 10)
    history = History(CHAINS, LATENCY)
    decision = sampler.next(history, Random(0))
    assert isinstance(decision, Suggestion)
    assert decision.chain == CHAINS[1].id


def test_the_search_waits_once_every_open_chain_waits() -> None:
    sampler = PerChainSampler(CHAINS, lambda chain: Waiting(), round_robin, 10)
    assert sampler.next(History(CHAINS, LATENCY), Random(0)) is WAIT


def test_what_a_chain_draws_does_not_depend_on_exhausted_chains() -> None:
    draws = {}

    class Drawing:
        def __init__(self, chain) -> None:
            self.chain = chain

        def next(self, history: History, rng: Random) -> Decision:
            draws.setdefault(self.chain.id, []).append(rng.random())
            return Stop("nothing") if self.chain is CHAINS[0] else Suggestion(self.chain.id, self.chain.space[0])

    for chains in (CHAINS, CHAINS[1:]):
        PerChainSampler(chains, Drawing, round_robin, 10).next(History(CHAINS, LATENCY), Random(3))
    first, second = draws[CHAINS[1].id]
    assert first == second
