"""Points of chains."""

from __future__ import annotations

from random import Random

import pytest
from search_cases import LATENCY, MIDDLE, SIX, chain

from autoopt.search import ChainSpace, Proposal, iterate, random_sample
from autoopt.search.history import History
from autoopt.search.points import PointTable, neighbour, sample, total_points
from autoopt.space import Categorical, NodeSpace, SearchSpace

HUGE = ChainSpace(
    "huge", (("p", "p"),), SearchSpace({"p": NodeSpace({f"x{i}": Categorical(*range(9)) for i in range(6)})})
)


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


def test_a_sample_has_new_points_once_each_and_neighbours_of_the_best() -> None:
    history = History([HUGE], LATENCY)
    best = HUGE.space[0]
    history.add(Proposal(0, HUGE.id, best))
    drawn = sample([HUGE], history, [(HUGE.id, best)], Random(0))
    keys = [history.key(*point) for point in drawn]
    assert len(set(keys)) == len(keys)
    assert history.key(HUGE.id, best) not in keys
    assert 1000 < len(drawn) <= 2000


@pytest.mark.parametrize("seed", range(20))
def test_a_neighbour_differs_in_one_node_and_is_a_point(seed: int) -> None:
    one = MIDDLE[2]
    start = one.space[seed % one.space.count]
    near = neighbour(one, start, Random(seed))
    one.space.index(near)
    assert sum(near.get(node) != start.get(node) for node in one.nodes) <= 1


def test_a_neighbour_that_is_cut_is_replaced_by_a_point_that_is_not() -> None:
    cut = chain("pass2", "pass5", cuts=({"pass2": {"mode": "a"}},))
    for seed in range(20):
        cut.space.index(neighbour(cut, cut.space[0], Random(seed)))


def test_a_point_without_a_choice_is_its_own_neighbour() -> None:
    assert neighbour(chain("pass1"), {}, Random(0)) == {}
