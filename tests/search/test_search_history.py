"""The trials of a study so far."""

from __future__ import annotations

import pytest
from search_cases import LATENCY, SIX

from autoopt.search import Feedback, Proposal
from autoopt.search.history import History

FIRST, SECOND, LAST = SIX[1], SIX[2], SIX[5]
POINT = {"pass5": {"mode": "a"}}


def history_of(*proposals: Proposal) -> History:
    history = History(SIX, LATENCY)
    for proposal in proposals:
        history.add(proposal)
    return history


def test_the_same_work_is_found_whatever_its_chain() -> None:
    history = history_of(Proposal(0, FIRST.id, {}, upto="pass3"), Proposal(1, LAST.id, POINT))
    assert history.find(FIRST.id, {}, "pass3") is history.trials[0]
    assert history.find(SECOND.id, {}, "pass3") is history.trials[0]
    assert history.find(SECOND.id, {}) is None
    assert history.find(LAST.id, POINT) is history.trials[1]
    assert history.has_key(history.key(SECOND.id, {}, "pass3"))
    assert not history.has_key(history.key(FIRST.id, POINT))


def test_the_first_of_equal_trials_is_found() -> None:
    history = history_of(Proposal(0, LAST.id, POINT), Proposal(1, LAST.id, POINT))
    assert history.find(LAST.id, POINT) is history.trials[0]


def test_trials_of_a_chain_keep_their_order() -> None:
    history = history_of(Proposal(0, LAST.id, POINT), Proposal(1, FIRST.id, POINT), Proposal(2, LAST.id, {}))
    assert [trial.proposal.number for trial in history.trials_of(LAST.id)] == [0, 2]
    assert history.trials_of(SECOND.id) == []


def test_a_result_is_recorded_once() -> None:
    history = history_of(Proposal(0, LAST.id, POINT))
    history.tell(0, Feedback({"latency_p50": 1.0}))
    assert history.trials[0].feedback == Feedback({"latency_p50": 1.0})
    with pytest.raises(ValueError, match="trial 0 has a result already"):
        history.tell(0, Feedback())
    for number in (-1, 1):
        with pytest.raises(ValueError, match="was never asked"):
            history.tell(number, Feedback())


@pytest.mark.parametrize(
    ("proposal", "words"),
    [
        (Proposal(1, LAST.id, POINT), "trial 1 cannot follow trial -1"),
        (Proposal(0, "elsewhere", POINT), "trial 0: no such chain: elsewhere"),
    ],
)
def test_proposals_that_do_not_fit_are_refused(proposal: Proposal, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        history_of(proposal)
