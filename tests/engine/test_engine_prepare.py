"""Preparing a run: the whole way from a request to a session, over a simulated worker pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulation import SOURCE, ReadingPool, faster, write_model

from autoopt.engine.parts.targets import Targets
from autoopt.engine.prepare import prepare
from autoopt.engine.run.early_warnings import CHECK_SOURCE
from autoopt.engine.run.session import Session, search_inline
from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.problem import reading as sources
from autoopt.problem import resources as resources_module
from autoopt.problem.run_request import RunRequest
from autoopt.results import Note, NoteKind
from autoopt.store import open_store
from autoopt.workers import CallResult

DAG: dict[str, Any] = {"name": "d", "passes": {"clean": "remove_unused"}, "chains": [["clean"]]}


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ReadingPool:
    pool = ReadingPool()
    pool.passes = {"remove_unused": faster(0.5)}
    monkeypatch.setattr(resources_module, "WorkerPool", lambda *_, **__: pool)
    return pool


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model({**SOURCE, "cosine": 1.0}, tmp_path / "in")


@pytest.fixture
def data(tmp_path: Path, pool: ReadingPool) -> Path:
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 3), np.float32), labels=np.zeros(2))
    pool.answers[sources.DESCRIBE_DATA] = {"labels": True, "label_kind": "class", "columns": {}}
    pool.answers[CHECK_SOURCE] = {"stops": [], "warnings": ["odd"]}
    return tmp_path / "d.npz"


def request(tmp_path: Path, model: Path, **options: Any) -> RunRequest:
    options = {"dag": DAG, "measurement": {"rounds": 0}, "home": tmp_path / "home", **options}
    return RunRequest(model=model, **options)


def test_a_request_is_taken_to_its_result(tmp_path: Path, pool: ReadingPool, model: Path, data: Path) -> None:
    with prepare(request(tmp_path, model, data=data)) as session:
        assert isinstance(session, Session)
        result = session.execute(search_inline)
    assert result.best.chain == "clean"
    assert result.notes == ("limit: accuracy may drop by at most 0.01 (--max-drop)", "WARNING: odd")


def test_a_new_search_over_known_results_asks_no_worker(
    tmp_path: Path, pool: ReadingPool, model: Path, data: Path
) -> None:
    warnings = []
    for again in (None, "all"):
        pool.functions.clear()
        pool.measured.clear()
        with prepare(request(tmp_path, model, data=data, again=again)) as session:
            assert isinstance(session, Session)
            result = session.execute(search_inline)
        warnings.append(result.warnings)
    assert pool.functions == []
    assert warnings == [("WARNING: odd",)] * 2


def test_a_source_that_could_not_be_checked_is_checked_again(
    tmp_path: Path, pool: ReadingPool, model: Path, data: Path
) -> None:
    pool.answers[CHECK_SOURCE] = CallResult(Outcome.FAILED, message="no memory")
    with prepare(request(tmp_path, model, data=data)) as session:
        assert isinstance(session, Session)
        assert session.notes == [Note("limit: accuracy may drop by at most 0.01 (--max-drop)")]
    pool.answers[CHECK_SOURCE] = {"stops": [], "warnings": ["odd"]}
    with prepare(request(tmp_path, model, data=data)) as session:
        assert isinstance(session, Session)
        assert Note("odd", NoteKind.WARNING) in session.notes


def test_a_run_whose_source_is_refused_has_failed(tmp_path: Path, pool: ReadingPool, model: Path, data: Path) -> None:
    pool.answers[CHECK_SOURCE] = {"stops": ["the classes are in another order"], "warnings": []}
    with pytest.raises(InputError, match="in another order"):
        prepare(request(tmp_path, model, data=data))
    with open_store(None, tmp_path / "home") as store:
        (run,) = store.runs.all()
    assert run.shown_status == "failed"
    assert "in another order" in run.result["error"]


def test_resources_are_closed_with_the_session(tmp_path: Path, pool: ReadingPool, model: Path) -> None:
    with prepare(request(tmp_path, model)) as session:
        scratch = session.ctx.resources.scratch
        assert scratch.is_dir()
    assert not scratch.exists()


def test_resources_are_closed_if_the_request_is_wrong(tmp_path: Path, pool: ReadingPool) -> None:
    with pytest.raises(InputError, match="no such model file"):
        prepare(request(tmp_path, tmp_path / "gone.onnx"))
    assert list((tmp_path / "home" / "work").iterdir()) == []


def test_without_a_model_the_file_is_named(tmp_path: Path, pool: ReadingPool) -> None:
    with pytest.raises(InputError, match="no model is named; give --model"):
        prepare(RunRequest(dag=DAG, home=tmp_path / "home"))


@pytest.mark.parametrize("field", ["dag", "model", "data"])
def test_a_path_that_is_too_long_is_wrong_input(
    tmp_path: Path, pool: ReadingPool, model: Path, data: Path, field: str
) -> None:
    wrong = replace(request(tmp_path, model, data=data), **{field: "x" * 100_000})
    with pytest.raises(InputError, match=r"^x+: File name too long$") as error:
        prepare(wrong)
    assert len(str(error.value)) < 5000


def test_several_targets_are_one_run_of_parts(tmp_path: Path, pool: ReadingPool, model: Path) -> None:
    targets = [{"name": "one", "threads": 1}, {"name": "two", "threads": 2}]
    with prepare(request(tmp_path, model, dag={**DAG, "targets": targets})) as prepared:
        assert isinstance(prepared, Targets)
        assert [part.name for part in prepared.parts] == ["one", "two"]


def test_a_bare_model_gets_a_proposed_dag(tmp_path: Path, pool: ReadingPool, model: Path) -> None:
    with prepare(RunRequest(dag=str(model), home=tmp_path / "home")) as session:
        assert session.ctx.problem.plan.chain_count > 0
        assert session.ctx.problem.plan.decisions
