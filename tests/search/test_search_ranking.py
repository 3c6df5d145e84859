"""The order of trials from best to worst."""

from __future__ import annotations

from search_cases import BOTH, LATENCY, SIX

from autoopt.search import Feedback, Proposal
from autoopt.search.pareto import best_first
from autoopt.search.trial import Trial


def trial(number: int, latency: float, accuracy: float = 0.0, violation: float = 0.0) -> Trial:
    values = {"latency_p50": latency, "accuracy": accuracy}
    return Trial(Proposal(number, SIX[0].id, {}), Feedback(values, violation))


def test_with_several_objectives_the_front_comes_first() -> None:
    fast, good, slow, broken = trial(0, 1, 0.5), trial(1, 9, 0.9), trial(2, 2, 0.4), trial(3, 0.1, 1, violation=1)
    failed = Trial(Proposal(4, SIX[0].id, {}), Feedback(failed=True))
    trials = [failed, broken, slow, good, fast]
    assert [each.proposal.number for each in best_first(trials, LATENCY)] == [0, 2, 1, 3, 4]
    assert [each.proposal.number for each in best_first(trials, BOTH)] == [0, 1, 2, 3, 4]
