"""The Python API: one run, resumed runs, plain functions as listeners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

import autoopt
from autoopt import api
from autoopt.errors import InputError
from autoopt.observer import Observer
from autoopt.settings import settings
from autoopt.store import open_store

DAG = {
    "name": "t",
    "passes": {"tidy": {"pass": "simplify"}},
    "chains": [["tidy"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


class Stop(Observer):
    """Interrupts the run after its first trial."""

    def on_trial_end(self, *_: object) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    settings.cache_clear()
    return write(mlp(width=64), tmp_path / "mlp")


def test_a_run_leaves_its_best_model_and_tells_plain_functions(model: Path, tmp_path: Path) -> None:
    events: list[str] = []

    def listener(event: str, **values: Any) -> None:
        events.append(event)

    result = autoopt.run(DAG, model=model, out=tmp_path / "out", listener=listener)
    assert result.best is not None
    assert result.best.path == str(tmp_path / "out" / "model.onnx")
    assert {"search_begins", "baseline", "trial_begins", "pass_begins", "measure_ends", "trial_ends"} <= set(events)


def test_without_a_folder_nothing_is_written(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = autoopt.run(DAG, model=model, out=None)
    assert result.best is not None
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file, not a folder for results"):
        autoopt.run(DAG, model=model, out=tmp_path / "file")
    assert not (tmp_path / "home").exists()


def test_interrupted_runs_are_resumed(model: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        autoopt.run(DAG, model=model, out=None, observer=Stop())
    with open_store(home=tmp_path / "home") as store:
        (run,) = store.runs.all()
    assert autoopt.resume(out=None) == []  # it was cancelled, and so is resumed only by its id
    (result,) = autoopt.resume(run.id[:6], out=None)
    assert result.run == run.id
    assert result.status == "finished"


def test_a_finished_run_is_not_resumed(model: Path) -> None:
    run = autoopt.run(DAG, model=model, out=None).run
    with pytest.raises(InputError, match=f"run {run} has finished; 'autoopt best {run}' shows its result"):
        autoopt.resume(run, out=None)


def test_an_unknown_run_is_the_users_error(model: Path) -> None:
    with pytest.raises(InputError, match="nosuchrun"):
        api.resume("nosuchrun", out=None)
