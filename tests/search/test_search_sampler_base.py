"""The contract of samplers, kept by every sampler in the list."""

from __future__ import annotations

import pkgutil
from importlib.util import find_spec
from random import Random

import pytest
from search_cases import LATENCY, MIDDLE, SIX, measure

from autoopt.search import Proposal, SearchConfig
from autoopt.search.history import History
from autoopt.search.samplers.base import Sampler, SamplerInputs, Stop, Suggestion, exhausted
from autoopt.spec.search import SAMPLERS, SamplerInfo

INSTALLED = [sampler for sampler in SAMPLERS if all(map(find_spec, sampler.requires))]


def create(info: SamplerInfo, chain) -> Sampler:
    config = SearchConfig(strategy="per-chain", sampler=info.name, stop_early=False)
    inputs = SamplerInputs(config, (chain,), LATENCY, budget=chain.space.count)
    return pkgutil.resolve_name(f"autoopt.search.samplers.{info.implementation}")(inputs)


@pytest.mark.parametrize("info", INSTALLED, ids=lambda info: info.name)
def test_a_sampler_tries_every_point_once_and_then_stops(info: SamplerInfo) -> None:
    chain = SIX[0]
    sampler = create(info, chain)
    history = History([chain], LATENCY)
    for number in range(chain.space.count):
        decision = sampler.next(history, Random(number))
        assert isinstance(decision, Suggestion)
        assert history.find(chain.id, decision.point) is None
        history.add(Proposal(number, decision.chain, decision.point, decision.upto))
        history.tell(number, measure(history.trials[-1]))
    assert sampler.next(history, Random(99)) == exhausted(chain.space.count) == Stop("all 9 points tried")


@pytest.mark.parametrize("info", INSTALLED, ids=lambda info: info.name)
def test_a_sampler_suggests_points_while_others_run(info: SamplerInfo) -> None:
    chain = MIDDLE[2]
    sampler = create(info, chain)
    history = History([chain], LATENCY)
    for number in range(4):
        decision = sampler.next(history, Random(number))
        assert isinstance(decision, Suggestion)
        chain.space.index(decision.point)
        history.add(Proposal(number, decision.chain, decision.point, decision.upto))
