"""The surrogate sampler on a space of two dozen points."""

from __future__ import annotations

from random import Random

from search_cases import LATENCY, SIX, measure

from autoopt.search import Feedback, Proposal, SearchConfig
from autoopt.search.history import FAILED, History
from autoopt.search.samplers.base import SamplerInputs, Stop, Suggestion
from autoopt.search.samplers.surrogate import SurrogateSampler


def run(chains, outcome=measure, trials: int = 100, **options) -> tuple[list[Proposal], str]:
    config = SearchConfig(seed=1, stop_early=False, **options)
    sampler = SurrogateSampler(SamplerInputs(config, tuple(chains), LATENCY, budget=24))
    history = History(chains, LATENCY)
    for number in range(trials):
        decision = sampler.next(history, Random(number))
        if isinstance(decision, Stop):
            return [trial.proposal for trial in history.trials], decision.reason
        assert isinstance(decision, Suggestion)
        history.add(Proposal(number, decision.chain, decision.point))
        history.tell(number, outcome(history.trials[-1].proposal))
    return [trial.proposal for trial in history.trials], ""


def test_points_that_share_a_failing_pass_are_not_said_to_be_tried() -> None:
    asked, reason = run(SIX, lambda proposal: Feedback(failed=True, path=(FAILED,)))
    assert len(asked) == 1
    assert reason == "1 of 24 points tried: the others fail or repeat known models like them"


def test_points_that_promise_to_be_infeasible_come_late() -> None:
    def outcome(proposal: Proposal) -> Feedback:
        broken = "pass3" in proposal.chain
        return Feedback({"latency_p50": 1.0}, violation=1.0 if broken else -1.0)

    asked, _ = run(SIX, outcome)
    places = [place for place, proposal in enumerate(asked) if "pass3" in proposal.chain]
    assert sum(places) / len(places) > 12
