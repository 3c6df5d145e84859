"""Searches of one chain that learn nothing."""

from __future__ import annotations

from collections import Counter
from random import Random

from search_cases import LATENCY, MIDDLE, SIX, chain

from autoopt.search import Proposal, SearchConfig
from autoopt.search.history import History
from autoopt.search.samplers.base import SamplerInputs, Stop
from autoopt.search.samplers.plain import RandomSampler, draw_new_point

CHAIN = SIX[0]


def test_draws_are_uniform() -> None:
    history = History([CHAIN], LATENCY)
    counts = Counter(repr(draw_new_point(CHAIN, history, Random(seed))) for seed in range(900))
    assert len(counts) == 9
    assert all(60 < count < 150 for count in counts.values())


def test_the_last_free_point_is_found_in_a_large_space() -> None:
    wide = MIDDLE[0]
    history = History([wide], LATENCY)
    points = list(wide.space.iterate())
    last = points.pop(17)
    for number, point in enumerate(points):
        history.add(Proposal(number, wide.id, point))
    assert draw_new_point(wide, history, Random(0)) == last
    history.add(Proposal(len(points), wide.id, last))
    assert draw_new_point(wide, history, Random(0)) is None


def test_an_empty_space_has_no_point() -> None:
    empty = chain("pass4", cuts=({"pass4": {}},))
    assert empty.space.count == 0
    assert draw_new_point(empty, History([empty], LATENCY), Random(0)) is None
    config = SearchConfig(strategy="per-chain", sampler="random", with_replacement=True, trials=1)
    inputs = SamplerInputs(config, (empty,), LATENCY, 1)
    assert RandomSampler(inputs).next(History([empty], LATENCY), Random(0)) == Stop("all 0 points tried")
