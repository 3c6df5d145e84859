from __future__ import annotations

from autoopt.outcome import Outcome
from autoopt.workers.process import CallResult
from autoopt.workers.quarantine import Deaths, Subject

DEATH = CallResult(Outcome.CRASHED, message="the worker died: SIGABRT", died=True)
GOOD = CallResult(Outcome.OK, {"x": 1})
MODEL = Subject.model("d" * 64)


def test_second_death_is_the_last() -> None:
    deaths = Deaths()
    deaths.note(MODEL, DEATH)
    assert deaths.reason(MODEL) is None
    deaths.note(MODEL, DEATH)
    assert deaths.reason(MODEL) == (
        "model dddddddddddd is quarantined: it killed its worker 2 times, last: the worker died: SIGABRT;"
        " try it again with --again failed, or 'autoopt store verify --lift dddddddddddd'"
    )
    assert deaths.reason(Subject.model("e" * 64)) is None


def test_only_deaths_that_nobody_caused_count() -> None:
    deaths = Deaths()
    harmless = (
        CallResult(Outcome.TIMEOUT),
        CallResult(Outcome.OUT_OF_MEMORY, died=True),
        CallResult(Outcome.CRASHED),
        CallResult(Outcome.CRASHED, message="the worker died: SIGKILL", died=True, transient=True),
        CallResult(Outcome.FAILED),
        GOOD,
    )
    for result in harmless * 3:
        deaths.note(MODEL, result)
    assert deaths.reason(MODEL) is None


def test_history_and_memory() -> None:
    kept: list[tuple[str, str]] = [(MODEL.key, "once")]
    deaths = Deaths(list(kept), lambda subject, message: kept.append((subject.key, message)))
    deaths.note(MODEL, DEATH)
    assert kept == [(MODEL.key, "once"), (MODEL.key, "the worker died: SIGABRT")]
    assert deaths.reason(MODEL)
    assert Deaths(kept).reason(MODEL)
