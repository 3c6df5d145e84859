"""Points of chains."""

from __future__ import annotations

from random import Random

import pytest
from search_cases import LATENCY, MIDDLE, SIX, chain

from autoopt.search import ChainSpace, Proposal, iterate, random_sample
from autoopt.search.history import History
from autoopt.search.points import PointTable, mixture, sample, total_points
from autoopt.space import Categorical, NodeSpace, SearchSpace

HUGE = ChainSpace(
    "huge", (("p", "p"),), SearchSpace({"p": NodeSpace({f"x{i}": Categorical(*range(9)) for i in range(6)})})
)
OTHER = ChainSpace(
    "other", (("p", "p"), ("q", "q")), SearchSpace({**HUGE.space.nodes, "q": NodeSpace({"x": Categorical(*range(9))})})
)
FOUR = chain("pass2", "pass5")


def test_all_points_are_counted_and_listed_chain_by_chain() -> None:
    points = list(iterate(SIX))
    assert len(points) == total_points(SIX) == 24
    assert len({repr(point) for point in points}) == 24
    assert [chain_id for chain_id, _ in points] == [c.id for c in SIX for _ in range(c.space.count)]


def test_every_point_may_be_drawn() -> None:
    drawn = {repr(random_sample(SIX, Random(seed))) for seed in range(400)}
    assert drawn == {repr(point) for point in iterate(SIX)}


def test_nothing_is_drawn_from_nothing() -> None:
    with pytest.raises(ValueError, match="empty range"):
        random_sample([], Random(0))


def test_a_table_finds_the_row_of_a_point_by_its_key() -> None:
    table = PointTable(MIDDLE)
    history = History(MIDDLE, LATENCY)
    for row, (chain_id, point) in enumerate(table.points):
        assert table.rows[history.key(chain_id, point)] == row


def test_a_table_of_a_huge_space_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 20000 points"):
        PointTable([HUGE])


def test_a_sample_has_new_points_once_each_and_mixtures_of_the_good_ones() -> None:
    history = History([HUGE, OTHER], LATENCY)
    good = {"p": HUGE.space[0]["p"], "q": OTHER.space[5]["q"]}
    history.add(Proposal(0, OTHER.id, good))
    drawn = sample([HUGE, OTHER], history, [(OTHER.id, good)], Random(0))
    keys = [history.key(*point) for point in drawn]
    assert len(set(keys)) == len(keys)
    assert history.key(OTHER.id, good) not in keys
    assert (HUGE.id, {"p": good["p"]}) in drawn, "settings help in other chains"
    assert sum(point.get("q") == good["q"] for _, point in drawn) > 50
    assert 500 < len(drawn) <= 1000


@pytest.mark.parametrize("seed", range(20))
def test_a_mixture_is_a_point_that_takes_all_nodes_but_one_from_good_points(seed: int) -> None:
    settings = {node: [(space, {"mode": "b"})] for node, space in FOUR.space.nodes.items()}
    mixed = mixture(FOUR, settings, Random(seed))
    FOUR.space.index(mixed)
    assert sum(values != {"mode": "b"} for values in mixed.values()) <= 1


def test_a_mixture_keeps_to_the_cuts_and_the_space_of_its_chain() -> None:
    cut = chain("pass2", "pass5", cuts=({"pass2": {"mode": "a"}},))
    settings = {
        "pass2": [(cut.space.nodes["pass2"], {"mode": "a"})],
        "pass5": [(NodeSpace({"mode": Categorical("d")}), {"mode": "d"})],
    }
    for seed in range(20):
        cut.space.index(mixture(cut, settings, Random(seed)))
