"""The quarantine of a store: by content, for a time, and until somebody lifts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.outcome import Cause, Outcome
from autoopt.problem import quarantine
from autoopt.problem.quarantine import Quarantine, Subject, lift, quarantined
from autoopt.store import Store, open_store
from autoopt.workers import CallResult

DIED = CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)
WORK = Subject("a" * 64, "simplify on model 1f2e3d")
OTHER = Subject("b" * 64, "model 4c5b6a")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in which `WORK` and `OTHER` have killed two workers."""
    opened = open_store(None, tmp_path)
    for subject in (WORK, OTHER):
        for _ in range(2):
            Quarantine(opened).note(subject, DIED)
    return opened


def test_deaths_are_remembered_in_the_store(store: Store) -> None:
    assert "SIGSEGV" in (Quarantine(store).reason(WORK) or "")
    assert Quarantine(store).reason(Subject("c", "another")) is None


def test_deaths_under_other_versions_do_not_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "library_version", lambda name: "0.1")
    assert Quarantine(store).reason(WORK) is None


def test_deaths_expire(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert quarantined(store)[0].expires == pytest.approx(store.clock() + quarantine.EXPIRY_SECONDS, abs=60)
    monkeypatch.setattr(quarantine, "EXPIRY_SECONDS", -60.0)
    assert Quarantine(store).reason(WORK) is None
    assert quarantined(store) == []


def test_a_retry_ignores_the_quarantine_of_earlier_runs(store: Store) -> None:
    retry = Quarantine(store, retry=True)
    assert retry.reason(WORK) is None
    for _ in range(2):
        retry.note(WORK, DIED)
    assert retry.reason(WORK)


def test_what_is_in_quarantine_is_listed_and_lifted(store: Store) -> None:
    Quarantine(store).note(Subject("c" * 64, "model that died once"), DIED)
    assert [(item.name, item.deaths) for item in quarantined(store)] == [(WORK.name, 2), (OTHER.name, 2)]
    assert [item.id for item in lift(store, ["aaa"])] == [WORK.key]
    assert Quarantine(store).reason(WORK) is None
    assert [item.id for item in quarantined(store)] == [OTHER.key]
    Quarantine(store).note(WORK, DIED)
    assert Quarantine(store).reason(WORK) is None, "the first death after it was lifted"
    with pytest.raises(InputError, match="'aaa' is not in quarantine"):
        lift(store, ["aaa"])
    assert len(lift(store, [])) == 1
    assert quarantined(store) == []


DEATH = CallResult(Outcome.CRASHED, message="the worker died: SIGABRT", died=True)
GOOD = CallResult(Outcome.OK, {"x": 1})
MODEL = Subject.model("d" * 64)


def test_second_death_is_the_last(store: Store) -> None:
    deaths = Quarantine(store)
    deaths.note(MODEL, DEATH)
    assert deaths.reason(MODEL) is None
    deaths.note(MODEL, DEATH)
    assert deaths.reason(MODEL) == (
        "model dddddddddddd is quarantined: it killed its worker 2 times, last: the worker died: SIGABRT;"
        " try it again with --again failed, or 'autoopt store verify --lift dddddddddddd'"
    )
    assert deaths.reason(Subject.model("e" * 64)) is None


def test_only_deaths_that_nobody_caused_count(store: Store) -> None:
    deaths = Quarantine(store)
    harmless = (
        CallResult(Outcome.TIMEOUT),
        CallResult(Outcome.OUT_OF_MEMORY, died=True),
        CallResult(Outcome.CRASHED),
        CallResult(Outcome.CRASHED, message="the worker died: SIGKILL", died=True, cause=Cause.MACHINE),
        CallResult(Outcome.FAILED),
        GOOD,
    )
    for result in harmless * 3:
        deaths.note(MODEL, result)
    assert deaths.reason(MODEL) is None
