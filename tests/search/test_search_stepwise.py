"""A search in the hands of a script."""

from __future__ import annotations

import pytest
from search_cases import LATENCY, SIX, chain, measure

from autoopt.search import SearchConfig, StepwiseStudy


def test_the_best_trial_is_known() -> None:
    search = StepwiseStudy(SIX, LATENCY, SearchConfig(stop_early=False))
    while (step := search.next_step()) is not None:
        feedback = measure(step.proposal)
        search.record_feedback(step, feedback.values, violation=feedback.violation, failed=feedback.failed)
    assert len(search.trials) == 24
    assert search.best is not None
    values = [
        t.feedback.values["latency_p50"] for t in search.trials if not t.feedback.failed and t.feedback.violation <= 0
    ]
    assert search.best.feedback.values["latency_p50"] == min(values)


def test_steps_start_from_models_that_exist() -> None:
    search = StepwiseStudy(
        SIX, LATENCY, SearchConfig(strategy="per-chain", sampler="exhaustive", allocation="sequential")
    )
    ran = []
    while (step := search.next_step()) is not None:
        assert (step.start == "source") == (not step.done)
        ran += step.todo
        made = {node: f"{step.proposal.number}-{node}" for node in step.todo}
        search.record_feedback(step, {"latency_p50": 1.0}, models=made)
    assert ran.count("pass1") == 1
    assert ran.count("pass2") == 3
    assert ran.count("pass3") == 1
    assert ran.count("pass5") == 9 + 3 + 6 + 3


def test_a_step_of_a_partial_chain_ends_where_it_says() -> None:
    config = SearchConfig(strategy="per-chain", sampler="exhaustive", order="pass-by-pass")
    search = StepwiseStudy([chain("pass2", "pass5")], LATENCY, config)
    step = search.next_step()
    assert step.todo == ("pass2",)
    search.record_feedback(step, {"latency_p50": 1.0}, models={"pass2": "m"})
    assert search.best is None
    with pytest.raises(ValueError, match="has a result already"):
        search.record_feedback(step, {"latency_p50": 1.0})


def test_models_of_other_nodes_are_refused_before_anything_is_noted() -> None:
    search = StepwiseStudy(SIX, LATENCY)
    step = search.next_step()
    with pytest.raises(ValueError, match="not a node of this step"):
        search.record_feedback(step, {"latency_p50": 1.0}, models={"elsewhere": "m"})
    search.record_feedback(step, failed=True)
    assert search.trials[0].feedback.failed
