from __future__ import annotations

from autoopt.outcome import Outcome
from autoopt.workers.process import CallResult
from autoopt.workers.quarantine import Deaths

DEATH = CallResult(Outcome.CRASHED, message="the worker died: SIGABRT", died=True)
GOOD = CallResult(Outcome.OK, {"x": 1})


def test_second_death_is_the_last() -> None:
    deaths = Deaths()
    deaths.note("d" * 64, DEATH)
    assert deaths.reason("d" * 64) is None
    deaths.note("d" * 64, DEATH)
    assert deaths.reason("d" * 64) == (
        "model dddddddddddd is quarantined: it killed its worker 2 times, last: the worker died: SIGABRT"
    )
    assert deaths.reason("e" * 64) is None


def test_only_deaths_that_nobody_caused_count() -> None:
    deaths = Deaths()
    harmless = (
        CallResult(Outcome.TIMEOUT),
        CallResult(Outcome.OUT_OF_MEMORY, died=True),
        CallResult(Outcome.CRASHED),
        CallResult(Outcome.FAILED),
        GOOD,
    )
    for result in harmless * 3:
        deaths.note("d", result)
    assert deaths.reason("d") is None


def test_history_and_memory() -> None:
    kept: list[tuple[str, str]] = [("d", "once")]
    deaths = Deaths(list(kept), lambda digest, message: kept.append((digest, message)))
    deaths.note("d", DEATH)
    assert kept == [("d", "once"), ("d", "the worker died: SIGABRT")]
    assert deaths.reason("d")
    assert Deaths(kept).reason("d")
