"""Processes that continue a run, in other folders and with other homes, use what the run began with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from builders import mlp, write

from autoopt.api import execute, resume
from autoopt.engine.prepare import prepare
from autoopt.engine.run.join import join
from autoopt.errors import ConfigError, InputError
from autoopt.problem.load import read, spec_of
from autoopt.problem.run_request import RunRequest
from autoopt.results import Trial
from autoopt.settings import settings
from autoopt.spec import load_dag
from autoopt.store import open_store
from autoopt.zoo.sweep import run_sweep
from autoopt.zoo.sweep_request import SweepRequest

SCRIPT = """\
from pathlib import Path
from typing import Annotated

from autoopt import Param, Pass, register


@register("noted")
class Noted(Pass):
    "Writes down what a file says; the checker refuses the model while something is broken."

    text: Annotated[str, Param("data"), "a file"] = "note.txt"
    touches = ("names",)

    def run(self, model):
        if Path("BROKEN").exists():
            model.graph.node[0].op_type = "Broken"
        model.graph.node[0].name = model.producer_name = Path(self.text).read_text()
        return model
"""
DAG = """\
name: told
model: net/model.onnx
user_script: script.py
data: {evaluation: x.npz, calibration: {path: x.npz, limit: 4}}
passes:
  zuse: {pass: noted}
  names: {pass: name_fix}
chains: [[zuse, names], [names]]
objectives: [{metric: size}]
constraints: []
measurement: {seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 1}
"""
Elsewhere = Callable[[str], Path]


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    """A folder with a DAG and what it names; its pass fails for as long as there is a file `broken` beside it."""
    folder = tmp_path / "dags"
    write(mlp(), folder / "net")
    (folder / "script.py").write_text(SCRIPT.replace("BROKEN", str(folder / "broken")))
    (folder / "note.txt").write_text("told")
    np.savez(folder / "x.npz", x=np.ones((8, 8), np.float32))
    (folder / "dag.yaml").write_text(DAG)
    (folder / "broken").touch()
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    """`elsewhere(name)`: go to a machine with a folder and a home of its own, which shares database and artifacts."""
    monkeypatch.setenv("AUTOOPT_DB_URL", f"sqlite:///{tmp_path / 'shared.db'}")
    monkeypatch.setenv("AUTOOPT_ARTIFACTS_URL", f"file://{tmp_path / 'artifacts'}")

    def go(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("AUTOOPT_HOME", str(folder / "home"))
        settings.cache_clear()
        return folder

    yield go
    settings.cache_clear()


ANOTHER = "name: another\npasses: [name_fix]\nchains: [[name_fix]]\n"


def redone(run: str) -> list[Trial]:
    """What a retry of the chain with the broken pass does."""
    with join(run) as joined:
        (chain,) = (name for name, chain in joined.session.ctx.chains.items() if len(chain.nodes) == 2)
        joined.retry_failures()
        rows = []
        while (row := joined.claim_trial(chain)) is not None:
            rows.append(joined.execute(row))
        assert joined.conclude() is not None
    return rows


def test_a_chain_of_a_sweep_is_retried_from_another_folder(dags: Path, elsewhere: Elsewhere) -> None:
    elsewhere("here")
    (dags / "zoo.yaml").write_text("name: z\ndag: dag.yaml\ndata: {evaluation: x.npz}\nmodels: [net]\n")
    run = run_sweep(SweepRequest(zoo="../dags/zoo.yaml")).models[0].run
    (dags / "broken").unlink()
    (dags / "dag.yaml").write_text(ANOTHER)
    elsewhere("there")
    assert [row.outcome for row in redone(run)] == ["ok"]
    with open_store() as store:
        assert {t.outcome for t in store.trials.all(run)} == {"ok"}
    np.savez(dags / "x.npz", x=np.zeros((8, 8), np.float32))
    with pytest.raises(InputError, match="cannot be joined here"), join(run):
        pass


@pytest.fixture
def site(dags: Path) -> Iterator[str]:
    """The address of a web server on the folder of the DAG."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(dags))) as web:
        Thread(target=web.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()


def test_another_machine_fetches_data_and_script_for_itself(dags: Path, site: str, elsewhere: Elsewhere) -> None:
    text = DAG.replace("script.py", f"{site}/script.py").replace("path: x.npz", f"path: '{site}/x.npz'")
    (dags / "dag.yaml").write_text(text.replace("net/model.onnx", f"{site}/net/model.onnx"))
    here = elsewhere("here")
    run = execute(RunRequest(dag=str(dags / "dag.yaml"), data=f"file://{dags}/x.npz")).run
    (dags / "broken").unlink()
    (dags / "dag.yaml").write_text(ANOTHER)
    shutil.rmtree(here)
    elsewhere("there")
    assert [row.outcome for row in redone(run)] == ["ok"]


def interrupted(request: RunRequest) -> str:
    with pytest.raises(KeyboardInterrupt), prepare(request) as session:
        raise KeyboardInterrupt
    return session.ctx.run


def test_resume_from_another_folder_goes_on_with_the_dag_as_it_was_given(dags: Path, elsewhere: Elsewhere) -> None:
    shutil.copytree(dags, elsewhere("here"), dirs_exist_ok=True)
    (dags / "broken").unlink()
    data: dict[str, Any] = {"path": "x.npz", "limit": 6}
    given = interrupted(RunRequest(dag=load_dag("dag.yaml").document.value, data=data))  # starts from this folder
    named = interrupted(RunRequest(dag="../dags/dag.yaml"))
    elsewhere("there")
    (dags / "dag.yaml").write_text(DAG.replace("limit: 4", "limit: 5"))
    assert [r.run for r in resume(given)] == [given]
    with pytest.raises(InputError, match="cannot be resumed"):
        resume(named)
    (dags / "dag.yaml").unlink()
    assert [r.run for r in resume(named)] == [named]


def test_what_is_kept_of_a_request_is_the_dag_with_its_lines(dags: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dags)
    (dags / "dag.yaml").write_text(DAG.replace("script.py", "gone.py"))
    kept = json.loads(json.dumps(read(RunRequest(dag="dag.yaml")).to_json(), sort_keys=True))
    monkeypatch.chdir("/")
    again = spec_of(RunRequest.from_json(kept))
    assert again == load_dag(dags / "dag.yaml")
    assert list(again.passes) == ["zuse", "names"]
    with pytest.raises(ConfigError, match=r"no such file: gone\.py") as raised:
        again.check_files()
    assert (raised.value.file, raised.value.line) == (str(dags / "dag.yaml"), 3)
