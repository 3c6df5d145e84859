"""The answer of a run in a sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest

from autoopt.report.words.verdict import answer, lossy_steps, verdict
from autoopt.results import RunResult

INTERIM = ("running", "cancelled", "interrupted")

KEPT = {"best": {"chain": "source"}}
GAIN = "3.3x faster (3.2 to 3.4), 3.3x smaller, accuracy 99.5 % (was 99.5 %)"
STAYS = "no candidate was measurably better, so your model stays."
OPEN = "no candidate's gain on the source model is certain"


def result_of(data: dict[str, Any], **changes: Any) -> RunResult:
    """The run with other fields; those of `best` are changed in it."""
    best = changes.get("best", {})
    return RunResult.from_json({**data, **changes, "best": best and {**data["best"], **best}})


def of(metric: str, goal: str = "minimize") -> dict[str, Any]:
    return {"objectives": [{"metric": metric, "goal": goal}]}


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        ({"best": {"trial": 1}}, "better", rf"{GAIN}\."),
        (KEPT, "not better", f"Not faster: {STAYS}"),
        (KEPT | of("size"), "not better", f"Not smaller: {STAYS}"),
        (KEPT | of("throughput"), "not better", f"Not higher throughput: {STAYS}"),
        (KEPT | of("accuracy"), "not better", f"Not better: {STAYS}"),
        (
            KEPT | {"undecided": OPEN},
            "undecided",
            "Undecided whether a candidate is faster; keeping your model. To decide, run it again: it measures on.",
        ),
        (
            KEPT | {"undecided": OPEN} | of("tokens_per_second", "maximize"),
            "undecided",
            "Undecided whether a candidate has more tokens per second; .*",
        ),
        (
            {"best": {"measured": {"rounds": 3, "disturbed_rounds": 2}}, "undecided": "two are close"},
            "better",
            r".*\. Still open: two are close\. "
            r"To decide, run it again with --again measurements on a quieter machine\.",
        ),
        (
            {"best": {"unsure": ["accuracy"]}},
            "better",
            ".*Not certain yet: whether accuracy stays within its limit. More evaluation data would decide.",
        ),
        (
            {"best": {"unsure": ["accuracy", "f1"]}},
            "better",
            ".*Not certain yet: whether accuracy and f1 stay within their limits.*",
        ),
        (
            {"best": {"measured": {"fallen_class": {"name": "crack", "before": 1.0, "after": 0.2}}}},
            "better",
            ".*Class crack fell most: recall 20 %, was 100 %.",
        ),
        ({"best": {"measured": {"identical_outputs": True}}}, "better", r".*, accuracy 99\.5 %, identical outputs\."),
        ({"best": None}, "none", "No model meets the constraints."),
        *(({"status": status, "best": {"trial": 1}}, "better", f"So far: {GAIN}.") for status in INTERIM),
        ({"status": "running", "best": None}, "none", "So far: no model meets the constraints."),
        (
            {"status": "running", **KEPT},
            "not better",
            "So far: no candidate is measurably better than your model.",
        ),
        (
            KEPT | {"trials": {"total": 2, "ok": 0, "timeout": 2}, "time_limit": "run"},
            "undecided",
            "Undecided: the time was up before a candidate was measured; keeping your model."
            r" To decide, allow more time \(--minutes\).",
        ),
        *(
            (
                KEPT | {"trials": {"total": 7, "ok": 0, "crashed": 6, "timeout": 1}, "time_limit": limit},
                "undecided",
                "Undecided: each of 7 trials failed to give a model that could be measured; keeping your model.",
            )
            for limit in (None, "run")
        ),
        (
            KEPT | {"trials": {"total": 2, "ok": 2}, "time_limit": "run"},
            "not better",
            r".*so your model stays\. The time was up after 2 trials; more time \(--minutes\) allows more\.",
        ),
        *(
            (
                KEPT | {"trials": trials, "time_limit": "run"},
                "not better",
                f"No gain within the limits: {text}; your model stays. The time was up after .*",
            )
            for trials, text in (
                ({"total": 1, "ok": 1, "infeasible": 1}, "the only candidate broke one"),
                ({"total": 2, "ok": 2, "infeasible": 2}, "each of 2 candidates broke one"),
                ({"total": 2, "ok": 1, "timeout": 1, "infeasible": 1}, "the only candidate broke one"),
            )
        ),
    ],
)
def test_the_answer_of_a_run(data: dict[str, Any], changes: dict[str, Any], expected: str, said: str) -> None:
    result = result_of(data, **changes)
    assert answer(result) == expected
    said = said.replace(GAIN, re.escape(GAIN))
    assert re.fullmatch(said, verdict(result)), verdict(result)


def test_a_lossy_model_without_data_comes_second_with_what_to_do(data: dict[str, Any]) -> None:
    kept = result_of(data, **KEPT, best_lossy={**data["best"], "trial": 25})
    assert verdict(kept).startswith(f"Lossless: not faster, {STAYS} Lossy: 3.3x faster (3.2 to 3.4), 3.3x smaller")
    assert lossy_steps(kept) == [
        "Judge the lossy model by accuracy: run it again with --data FILE",
        "Use it as it is: autoopt export 0123456789ab 25",
    ]
    broken = {**data, "lacks_data": True, "trials": {"total": 3, "ok": 3, "infeasible": 2}}
    assert lossy_steps(RunResult.from_json(broken)) == [
        "2 lossy models broke the limit on generated inputs; --data FILE judges by accuracy"
    ]
    for document in (data, {**broken, "lacks_data": False}):
        assert lossy_steps(RunResult.from_json(document)) == []
