"""Ask and tell, with samplers made for the test."""

from __future__ import annotations

from random import Random

import pytest
from search_cases import LATENCY, SIX

from autoopt.search import Feedback, Proposal, SearchConfig, Study
from autoopt.search.history import History
from autoopt.search.samplers.base import WAIT, Decision, Stop, Suggestion

CHAIN = SIX[5]


class Scripted:
    """Answers with decisions in order, and keeps the random numbers that it could draw."""

    def __init__(self, *decisions: Decision) -> None:
        self.decisions = list(decisions)
        self.draws: list[float] = []

    def next(self, history: History, rng: Random) -> Decision:
        self.draws.append(rng.random())
        return self.decisions.pop(0)


def mode(letter: str) -> Suggestion:
    return Suggestion(CHAIN.id, {"pass5": {"mode": letter}})


def study(*decisions: Decision, **config: object) -> Study:
    return Study(SearchConfig.model_validate(config), SIX, LATENCY, Scripted(*decisions))


def test_suggestions_become_numbered_proposals() -> None:
    asked = study(mode("a"), mode("b")).ask(2)
    assert asked == [Proposal(0, CHAIN.id, {"pass5": {"mode": "a"}}), Proposal(1, CHAIN.id, {"pass5": {"mode": "b"}})]


def test_a_sampler_that_waits_ends_the_batch_but_not_the_study() -> None:
    search = study(mode("a"), WAIT, mode("b"))
    assert len(search.ask(5)) == 1
    assert search.finished is None
    search.tell(0, Feedback({"latency_p50": 1.0}))
    assert [p.number for p in search.ask(1)] == [1]


def test_the_reason_of_a_sampler_that_stops_is_the_reason_of_the_study() -> None:
    search = study(mode("a"), Stop("nothing is left"))
    assert len(search.ask(5)) == 1
    assert search.finished == "nothing is left"
    assert search.ask() == []


def test_the_trial_limit_ends_the_study() -> None:
    search = study(mode("a"), mode("b"), mode("c"), trials=2)
    assert len(search.ask(5)) == 2
    assert search.finished == "trial limit of 2 reached"


def test_repeats_beside_the_trial_limit_are_counted_in_words() -> None:
    search = study(mode("a"), mode("b"), mode("c"), trials=2)
    search.ask(3)
    for number, artifact in enumerate(("new", "new")):
        search.tell(number, Feedback({"latency_p50": 1.0}, artifact=artifact))
    assert search.finished is None
    search.ask()
    assert search.finished == "trial limit of 2 reached; 1 trial that repeated a known model did not count"
    search.tell(2, Feedback({"latency_p50": 1.0}, artifact="new"))
    assert search.finished == "stopped after 2 trials that only repeated known models (limit 2)"


@pytest.mark.parametrize(
    ("upto", "feedback", "finished"),
    [
        (None, Feedback({"latency_p50": 1.0}, violation=-1.0), "all constraints met"),
        (None, Feedback({"latency_p50": 1.0}, violation=1.0), None),
        (None, Feedback(failed=True), None),
        ("pass1", Feedback({"latency_p50": 1.0}, violation=-1.0), None),
    ],
)
def test_only_a_whole_chain_within_the_constraints_meets_the_goals(
    upto: str | None, feedback: Feedback, finished: str | None
) -> None:
    search = study(Suggestion(CHAIN.id, {}, upto), stop_when_goals_met=True)
    search.ask()
    search.tell(0, feedback)
    assert search.finished == finished


def test_each_trial_draws_from_its_own_generator() -> None:
    sampler, resumed = Scripted(mode("a"), mode("b"), mode("c")), Scripted(mode("c"))
    whole = Study(SearchConfig(seed=4), SIX, LATENCY, sampler)
    whole.ask(3)
    again = Study(SearchConfig(seed=4), SIX, LATENCY, resumed)
    again.restore(whole.trials[:2])
    again.ask()
    assert resumed.draws == sampler.draws[2:]
    assert len(set(sampler.draws)) == 3


def test_trials_are_restored_with_their_results_before_the_first_ask() -> None:
    trials = [Proposal(0, CHAIN.id, {}, feedback=Feedback({"latency_p50": 1.0})), Proposal(1, CHAIN.id, {})]
    search = study(mode("a"))
    search.restore(trials)
    assert list(search.trials) == trials
    with pytest.raises(ValueError, match="restore must come before the first ask"):
        search.restore(trials)
