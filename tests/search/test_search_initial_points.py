"""What is tried before there are results."""

from __future__ import annotations

import pytest
from search_cases import LATENCY, SIX, chain

from autoopt.search import ChainSpace, Feedback, Proposal
from autoopt.search.history import History
from autoopt.search.samplers.initial_points import after_failures, diverse_chains, initial_points
from autoopt.tuning import SEARCH

FIRST = {"pass2": {"mode": "c"}}


def test_every_chain_of_a_few_gets_a_point() -> None:
    points = initial_points(SIX, 30, seed=0)
    assert sorted(chain_id for chain_id, _ in points) == sorted(c.id for c in SIX)
    for chain_id, point in points:
        next(c for c in SIX if c.id == chain_id).space.index(point)


def test_prior_points_come_first_and_replace_the_random_one() -> None:
    chains = [chain("pass4"), chain("pass2", prior=(FIRST,))]
    points = initial_points(chains, 30, seed=0)
    assert points[0] == ("pass2", FIRST)
    assert [chain_id for chain_id, _ in points] == ["pass2", "pass4"]


def test_prior_points_of_several_chains_take_turns_in_the_order_of_the_chains() -> None:
    one, two = list(chain("pass2").space.iterate()), list(chain("pass5").space.iterate())
    chains = [chain("pass2", prior=tuple(one[:2])), chain("pass5", prior=tuple(two[:2]))]
    expected = [("pass2", one[0]), ("pass5", two[0]), ("pass2", one[1]), ("pass5", two[1])]
    assert all(initial_points(chains, 30, seed=seed)[:4] == expected for seed in range(5))


@pytest.mark.parametrize(("weight", "place"), [(1.5, 0), (1.0, 0), (0.99, 2)])
def test_prior_points_of_a_chain_of_less_than_neutral_weight_come_after_all_others(weight: float, place: int) -> None:
    several = chain("pass2", prior=tuple(chain("pass2").space.iterate())[:2])
    single = next(chain("pass5").space.iterate())
    points = initial_points([chain("pass5", prior=(single,), weight=weight), several], 30, seed=0)
    assert points[place] == ("pass5", single)


def test_chains_of_more_weight_come_first() -> None:
    chains = [chain("pass2"), chain("pass4", weight=3.0), chain("pass5", weight=2.0)]
    assert [chain_id for chain_id, _ in initial_points(chains, 30, seed=1)] == ["pass4", "pass5", "pass2"]


@pytest.mark.parametrize("seed", range(5))
def test_a_search_without_priors_begins_with_the_first_values(seed: int) -> None:
    first, point = initial_points(SIX, 30, seed=seed)[0]
    spaces = {each.id: each.space for each in SIX}
    assert point == spaces[first][0]
    points = [initial_points(SIX, 30, seed=each)[1:] for each in range(20)]
    assert any(point != spaces[name][0] for entries in points for name, point in entries)


def test_chains_without_points_are_left_out() -> None:
    empty = chain("pass4", cuts=({"pass4": {}},))
    assert [chain_id for chain_id, _ in initial_points([empty, chain("pass5")], 10, seed=0)] == ["pass5"]


def test_of_many_chains_a_few_unlike_ones_get_a_point() -> None:
    many = [ChainSpace(str(i), c.passes, c.space) for i, c in enumerate(SIX * 3)]
    assert len(initial_points(many, 20, seed=0)) == SEARCH.diverse
    assert len(initial_points(many, 8, seed=0)) == 4


def test_the_points_depend_on_the_seed_only() -> None:
    assert initial_points(SIX, 30, seed=5) == initial_points(SIX, 30, seed=5)
    assert initial_points(SIX, 30, seed=5) != initial_points(SIX, 30, seed=6)


def test_unlike_chains_are_selected_before_alike_ones() -> None:
    chains = [chain("pass1", "pass2"), chain("pass1", "pass2", "pass3"), chain("pass4", "pass5")]
    assert diverse_chains(chains, 2) == [chains[0], chains[2]]
    assert diverse_chains(chains, 9) == [chains[0], chains[2], chains[1]]


def test_first_points_come_before_prior_ones_in_their_order_and_once() -> None:
    one, two = list(chain("pass2").space.iterate()), list(chain("pass5").space.iterate())
    chains = [chain("pass2", prior=tuple(one[:2])), chain("pass5", prior=(two[0],)), chain("pass4")]
    first = [("pass5", two[1]), ("pass2", one[1])]
    points = initial_points(chains, 30, 0, first)
    assert points[:4] == [*first, ("pass2", one[0]), ("pass5", two[0])]
    assert [chain_id for chain_id, _ in points[4:]] == ["pass4"]
    assert initial_points(chains[:1], 30, 0, first)[0] == ("pass2", one[1]), "those of other chains are ignored"


def test_a_chain_whose_first_point_fails_gets_another_one_once() -> None:
    history = History(SIX, LATENCY)
    first = initial_points(SIX, 30, seed=0)
    for number, point in enumerate(first):
        history.add(Proposal(number, *point))
        history.tell(number, Feedback(failed=number == 0))
    (again,) = after_failures(first, history, seed=0)
    assert again[0] == first[0][0]
    history.add(Proposal(len(first), *again))
    history.tell(len(first), Feedback(failed=True))
    assert list(after_failures(first, history, seed=0)) == []
