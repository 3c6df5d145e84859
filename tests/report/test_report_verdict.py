"""The answer of a run in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.report.words.verdict import answer, deciding_action, gains, lossy_steps, verdict
from autoopt.results import RunResult

SOURCE = {"chain": "source"}


def test_a_better_model_is_described_by_what_changed(data: dict[str, Any]) -> None:
    result = RunResult.from_json(data)
    assert answer(result) == "better"
    assert verdict(result) == "3.3x faster (3.2 to 3.4), 3.3x smaller, accuracy 99.5 % (was 99.5 %)."


def test_no_better_model_is_an_answer_too(data: dict[str, Any]) -> None:
    kept = RunResult.from_json({**data, "best": {**data["best"], **SOURCE}})
    assert answer(kept) == "not better"
    assert verdict(kept) == "Not faster: no candidate was measurably better, so your model stays."


def test_the_word_is_that_of_the_objective(data: dict[str, Any]) -> None:
    for metric, word in (("size", "smaller"), ("throughput", "higher throughput"), ("accuracy", "better")):
        objectives = [{"metric": metric, "goal": "minimize"}]
        kept = RunResult.from_json({**data, "best": {**data["best"], **SOURCE}, "objectives": objectives})
        assert verdict(kept).startswith(f"Not {word}: ")


def test_an_open_question_comes_with_what_would_decide_it(data: dict[str, Any]) -> None:
    reason = "no candidate's gain on the source model is certain"
    quiet = RunResult.from_json({**data, "best": {**data["best"], **SOURCE}, "undecided": reason})
    assert answer(quiet) == "undecided"
    assert verdict(quiet) == (
        "Undecided whether a candidate is faster; keeping your model. To decide, run it again: it measures on."
    )
    objectives = [{"metric": "tokens_per_second", "goal": "maximize"}]
    tokens = {**data, "best": {**data["best"], **SOURCE}, "undecided": reason, "objectives": objectives}
    assert verdict(RunResult.from_json(tokens)).startswith("Undecided whether a candidate has more tokens per second;")
    measured = {"rounds": 3, "disturbed_rounds": 2}
    busy = RunResult.from_json({**data, "best": {**data["best"], "measured": measured}, "undecided": "two are close"})
    assert deciding_action(busy) == ("To decide, run it again with --again measurements on a quieter machine.")
    assert verdict(busy).endswith(f". Still open: two are close. {deciding_action(busy)}")


def test_a_lossy_model_without_data_comes_second_with_what_to_do(data: dict[str, Any]) -> None:
    lossy = {**data["best"], "trial": 25}
    kept = RunResult.from_json({**data, "best": {**data["best"], **SOURCE}, "best_lossy": lossy})
    assert verdict(kept).startswith("Lossless: not faster, no candidate was measurably better, so your model stays. ")
    assert "Lossy: 3.3x faster (3.2 to 3.4), 3.3x smaller" in verdict(kept)
    assert lossy_steps(kept) == [
        "Judge the lossy model by accuracy: run it again with --data FILE",
        "Use it as it is: autoopt export 0123456789ab 25",
    ]
    assert lossy_steps(RunResult.from_json(data)) == []
    broken = {**data, "lacks_data": True, "trials": {"total": 3, "ok": 3, "infeasible": 2}}
    assert lossy_steps(RunResult.from_json(broken)) == [
        "2 lossy models broke the limit on generated inputs; --data FILE judges by accuracy"
    ]
    assert lossy_steps(RunResult.from_json({**broken, "lacks_data": False})) == []


def test_a_limit_that_the_data_cannot_confirm_asks_for_more_data(data: dict[str, Any]) -> None:
    text = verdict(RunResult.from_json({**data, "best": {**data["best"], "unsure": ["accuracy"]}}))
    assert text.endswith("Not certain yet: whether accuracy stays within its limit. More evaluation data would decide.")
    text = verdict(RunResult.from_json({**data, "best": {**data["best"], "unsure": ["accuracy", "f1"]}}))
    assert "Not certain yet: whether accuracy and f1 stay within their limits." in text


def test_the_class_that_fell_most_is_named(data: dict[str, Any]) -> None:
    measured = {"fallen_class": {"name": "crack", "before": 1.0, "after": 0.2}}
    result = RunResult.from_json({**data, "best": {**data["best"], "measured": measured}})
    assert verdict(result).endswith("Class crack fell most: recall 20 %, was 100 %.")


def test_identical_outputs_are_said(data: dict[str, Any]) -> None:
    result = RunResult.from_json({**data, "best": {**data["best"], "measured": {"identical_outputs": True}}})
    assert result.best is not None
    assert gains(result, result.best)[-2:] == ["accuracy 99.5 %", "identical outputs"]


def test_without_a_model_that_meets_the_constraints_it_says_so(data: dict[str, Any]) -> None:
    result = RunResult.from_json({**data, "best": None})
    assert (answer(result), verdict(result)) == ("none", "No model meets the constraints.")


def test_an_unfinished_run_answers_for_its_trials_so_far(data: dict[str, Any]) -> None:
    for status in ("running", "cancelled", "interrupted"):
        text = verdict(RunResult.from_json({**data, "status": status}))
        assert text == "So far: 3.3x faster (3.2 to 3.4), 3.3x smaller, accuracy 99.5 % (was 99.5 %)."
    none = RunResult.from_json({**data, "status": "running", "best": None})
    assert verdict(none) == "So far: no model meets the constraints."
    kept = RunResult.from_json({**data, "status": "running", "best": {**data["best"], **SOURCE}})
    assert verdict(kept) == "So far: no candidate is measurably better than your model."


def test_a_run_without_time_to_measure_is_undecided(data: dict[str, Any]) -> None:
    trials = {"total": 2, "ok": 0, "timeout": 2}
    best = {**data["best"], **SOURCE}
    result = RunResult.from_json({**data, "best": best, "trials": trials, "time_limit": "run"})
    assert answer(result) == "undecided"
    assert verdict(result) == (
        "Undecided: the time was up before a candidate was measured; keeping your model."
        " To decide, allow more time (--minutes)."
    )


def test_a_run_whose_trials_all_failed_is_undecided(data: dict[str, Any]) -> None:
    trials = {"total": 7, "ok": 0, "crashed": 6, "timeout": 1}
    for limit in (None, "run"):
        changes = {"best": {**data["best"], **SOURCE}, "trials": trials, "time_limit": limit}
        result = RunResult.from_json({**data, **changes})
        assert answer(result) == "undecided"
        assert verdict(result) == (
            "Undecided: each of 7 trials failed to give a model that could be measured; keeping your model."
        )


def test_a_source_that_stays_because_the_time_was_up_says_so(data: dict[str, Any]) -> None:
    best = {**data["best"], **SOURCE}
    changes = {"best": best, "trials": {"total": 2, "ok": 2}, "time_limit": "run"}
    text = verdict(RunResult.from_json({**data, **changes}))
    assert text.endswith("so your model stays. The time was up after 2 trials; more time (--minutes) allows more.")


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        ({"total": 1, "ok": 1, "infeasible": 1}, "the only candidate broke one"),
        ({"total": 2, "ok": 2, "infeasible": 2}, "each of 2 candidates broke one"),
        ({"total": 2, "ok": 1, "timeout": 1, "infeasible": 1}, "the only candidate broke one"),
    ],
)
def test_a_run_whose_candidates_all_broke_a_limit_says_so(
    data: dict[str, Any], trials: dict[str, int], text: str
) -> None:
    changes = {"best": {**data["best"], **SOURCE}, "trials": trials, "time_limit": "run"}
    result = RunResult.from_json({**data, **changes})
    assert answer(result) == "not better"
    assert verdict(result).startswith(f"No gain within the limits: {text}; your model stays. The time was up after ")
