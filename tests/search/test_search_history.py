"""The trials of a study so far."""

from __future__ import annotations

from search_cases import LATENCY, SIX

from autoopt.search import Proposal
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


def test_trials_of_a_chain_keep_their_order() -> None:
    history = history_of(Proposal(0, LAST.id, POINT), Proposal(1, FIRST.id, POINT), Proposal(2, LAST.id, {}))
    assert [trial.proposal.number for trial in history.trials_of(LAST.id)] == [0, 2]
    assert history.trials_of(SECOND.id) == []
