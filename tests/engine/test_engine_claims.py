"""Claims: one process does the work, others wait for its result until the run's deadline."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from children import HANG_SECONDS
from simulation import SOURCE, Clock, write_model
from store_owners import by

from autoopt.engine.work import claims
from autoopt.engine.work.attempt import Attempt
from autoopt.engine.work.claims import claim_or_wait, released_on_error
from autoopt.errors import TimeUp
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import EvaluationRecord, Store
from autoopt.store.memory import MemoryStore


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return MemoryStore(tmp_path)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "POLL_SECONDS", 0.0)


@pytest.fixture
def record(store: Store, tmp_path: Path) -> EvaluationRecord:
    artifact = store.artifacts.put(write_model(SOURCE, tmp_path / "model").parent)
    return EvaluationRecord("key", Candidate(artifact), "size", Outcome.OK)


def test_free_work_is_ours(store: Store) -> None:
    assert claim_or_wait(store, Attempt("run"), "evaluation", "key", 60.0)
    assert by(store, "other").claims.acquire("evaluation", "key").state == "held"


def test_finished_work_is_not_ours(store: Store, record: EvaluationRecord) -> None:
    store.results.finish_evaluation(record)
    assert not claim_or_wait(store, Attempt("run"), "evaluation", "key", 60.0)


def test_work_of_another_process_is_waited_for(store: Store, record: EvaluationRecord) -> None:
    by(store, "other").claims.acquire("evaluation", "key")
    waited: list[bool] = []
    thread = threading.Thread(
        target=lambda: waited.append(claim_or_wait(store, Attempt("run"), "evaluation", "key", 60.0))
    )
    thread.start()
    by(store, "other").results.finish_evaluation(record)
    thread.join(HANG_SECONDS)
    assert waited == [False]


def test_work_that_another_process_gave_up_is_ours(store: Store) -> None:
    by(store, "other").claims.acquire("evaluation", "key")
    by(store, "other").claims.release("evaluation", "key")
    assert claim_or_wait(store, Attempt("run"), "evaluation", "key", 60.0)


def test_nobody_waits_long_after_the_deadline(store: Store) -> None:
    by(store, "other").claims.acquire("evaluation", "key")
    attempt = Attempt("run", deadline=10.0, clock=Clock(10.0 + claims.GRACE_SECONDS + 1.0))
    with pytest.raises(TimeUp):
        claim_or_wait(store, attempt, "evaluation", "key", 60.0)


def test_a_claim_is_released_if_the_time_runs_out(store: Store) -> None:
    store.claims.acquire("evaluation", "key")
    with pytest.raises(TimeUp), released_on_error(store, "evaluation", "key"):
        raise TimeUp
    assert by(store, "other").claims.acquire("evaluation", "key")


def test_a_claim_is_kept_if_the_work_fails_otherwise(store: Store) -> None:
    store.claims.acquire("evaluation", "key")
    with pytest.raises(ValueError, match="a bug"), released_on_error(store, "evaluation", "key"):
        raise ValueError("a bug")
    assert by(store, "other").claims.acquire("evaluation", "key").state == "held"
