"""The choice among points that promise the same."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from search_cases import LATENCY, SIX

from autoopt.search import Feedback, Proposal
from autoopt.search.history import History
from autoopt.search.samplers.tie_breaking import cheapest, uncached_suffix
from autoopt.tuning import SEARCH

LONG, SHORT = SIX[0], SIX[5]
POINTS = [(LONG.id, point) for point in LONG.space.iterate()]


@pytest.fixture
def history() -> History:
    """One finished trial of the first point of the long chain."""
    history = History(SIX, LATENCY)
    history.add(Proposal(0, *POINTS[0]))
    history.tell(0, Feedback({"latency_p50": 1.0}))
    return history


def test_the_best_score_wins(history: History) -> None:
    scores = [0.0] * len(POINTS)
    scores[4] = 2 * SEARCH.equal
    assert cheapest(POINTS, scores, history, None, Random(0)) == POINTS[4]


def test_among_equals_the_least_new_work_wins(history: History) -> None:
    for seed in range(10):
        chain, point = cheapest(POINTS[1:], [0.0] * 8, history, None, Random(seed))
        assert uncached_suffix(history, chain, point) == 1  # pass1 and pass2 ran with the same settings


def test_among_equals_a_measured_candidate_wins_over_less_work(history: History) -> None:
    def cost(chain: str, point: object) -> tuple[bool, int]:
        return point == POINTS[8][1], 3

    assert cheapest(POINTS, [0.0] * 9, history, cost, Random(0)) == POINTS[8]


def test_other_equals_are_chosen_at_random() -> None:
    empty = History(SIX, LATENCY)
    counts = Counter(repr(cheapest(POINTS, [0.0] * 9, empty, None, Random(seed))) for seed in range(90))
    assert len(counts) == 9


def test_of_very_many_equals_some_are_compared() -> None:
    priced = []

    def cost(chain: str, point: object) -> tuple[bool, int]:
        priced.append(point)
        return False, 1

    many = POINTS * 5
    cheapest(many, [0.0] * len(many), History(SIX, LATENCY), cost, Random(0))
    assert len(priced) == SEARCH.max_compared


def test_work_counts_from_where_finished_trials_differ(history: History) -> None:
    assert uncached_suffix(history, *POINTS[0]) == 0
    other = {"pass2": {"mode": "b"}, "pass5": {"mode": "a"}}
    assert uncached_suffix(history, LONG.id, other) == 2
    assert uncached_suffix(history, SHORT.id, {"pass5": {"mode": "a"}}) == 1
    history.add(Proposal(1, LONG.id, other))
    assert uncached_suffix(history, LONG.id, other) == 2, "a running trial has cached nothing yet"
