"""Runs as Prefect flow runs, against a real server and against one of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders import mlp, write
from children import HANG_SECONDS
from onnx import helper
from ports import free_port
from prefect_server import end_personal_server, prepared, running_server, wait_until_shown

from autoopt.orchestrate.flow_runs import naming
from autoopt.orchestrate.flow_runs.shown_run import Showing, ShownRun
from autoopt.orchestrate.server.rest import PrefectApi
from autoopt.store import open_store

pytestmark = pytest.mark.service

DAG = """\
name: small
passes:
  tidy: {pass: simplify}
  quant: {pass: dynamic_quantization, params: {weight_type: {search: [QInt8, QUInt8]}}}
  broken: {pass: fix_input_shape, params: {shapes: {nothing: [1, 2]}}}
chains: [[tidy, quant], [tidy], [broken]]
objectives: [{metric: size}]
constraints: []
measurement: {seconds: 0.2, replicas: 2, target_width: 1.0, rounds: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = mlp(width=32)
    first = model.graph.node[0]  # tidy has an Identity to remove; else its chain would repeat the source
    model.graph.node.insert(0, helper.make_node("Identity", [first.input[0]], ["same"]))
    model.graph.node[1].input[0] = "same"
    write(model, tmp_path)
    (tmp_path / "dag.yaml").write_text(DAG)
    return tmp_path


@dataclass(frozen=True)
class Server:
    """A Prefect server, and the ids of what other tests left on it."""

    url: str
    before: frozenset[str] = frozenset()

    def find(self, what: str) -> list[dict[str, Any]]:
        """Rows that are not of other tests."""
        found = httpx.post(f"{self.url}/{what}/filter", json={"limit": 200}, timeout=HANG_SECONDS)
        return [row for row in found.raise_for_status().json() if row["id"] not in self.before]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env = {**kept, "PREFECT_HOME": str(prepared(folder / "prefect"))}
    with running_server(env, free_port(), folder / "server.log") as url:
        yield Server(url)


@pytest.fixture
def server(shared_server: Server) -> Server:
    before = [row["id"] for what in ("flow_runs", "task_runs", "artifacts", "logs") for row in shared_server.find(what)]
    return Server(shared_server.url, frozenset(before))


def autoopt(folder: Path, *options: str, **env: str) -> tuple[int, dict[str, Any], str]:
    """Run `autoopt run`; exit code, JSON document, standard error."""
    command = [
        sys.executable,
        "-m",
        "autoopt",
        "run",
        "dag.yaml",
        "--model",
        "model.onnx",
        "--engine",
        "prefect",
        "--json",
        *options,
    ]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    given = {**inherited, "AUTOOPT_HOME": str(folder / "home"), "PREFECT_HOME": str(folder / "prefect"), **env}
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=HANG_SECONDS)
    wait_until_shown(folder / "home")
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_one_flow_run_per_chain_with_its_trials_under_the_models(server: Server, folder: Path) -> None:
    code, document, stderr = autoopt(folder, PREFECT_API_URL=server.url)
    key = folder.name.replace("_", "-")
    assert code == 0, stderr
    assert document["trials"] == {"total": 4, "ok": 3, "refused": 1, "infeasible": 0}
    flows = {row["name"]: row for row in server.find("flow_runs")}
    assert set(flows) == {f"{folder.name} · small", "tidy -> quant", "tidy", "broken"}
    assert flows[f"{folder.name} · small"]["state_type"] == "COMPLETED"
    assert flows["tidy"]["state_type"] == "COMPLETED", flows["tidy"]["state"]["message"]
    assert flows["broken"]["state_type"] == "FAILED"
    assert flows["tidy"]["parent_task_run_id"] is not None
    trials = [row for row in server.find("task_runs") if row["name"].startswith("trial")]
    assert sorted(row["name"] for row in trials) == ["trial 0", "trial 1", "trial 2", "trial 3"]
    states = {row["name"]: row["state_type"] for row in trials}
    assert sorted(states.values()) == ["COMPLETED", "COMPLETED", "COMPLETED", "FAILED"]
    artifacts = {row["key"] for row in server.find("artifacts")}
    assert f"result-{key}-small" in artifacts
    assert {f"trials-{key}-small-{chain}" for chain in ("tidy", "tidy-quant", "broken")} <= artifacts
    assert {name.partition(f"-{key}")[0] for name in artifacts} == {"result", "trials", "best-so-far", "pareto"}
    logs = {row["message"]: row for row in server.find("logs")}
    assert not [text for text in logs if "Traceback" in text or text.endswith("NoneType: None")]
    assert logs["chain: tidy -> quant"]["task_run_id"] in {row["id"] for row in trials}
    [answer] = [text for text in logs if text.startswith(f"run {document['run']}: finished. ")]
    assert logs[answer]["flow_run_id"] == flows[f"{folder.name} · small"]["id"]
    tags = {tag.partition(":")[0] for tag in flows["tidy"]["tags"]}
    assert tags == {"model", "dag", "target", "run", "chain"}

    code, again, stderr = autoopt(folder, PREFECT_API_URL=server.url)
    assert code == 0, stderr
    assert again["reused"]
    assert again["pass_runs"]["executed"] == again["evaluations"]["executed"] == 0
    assert len(server.find("flow_runs")) == len(flows)  # a reused run starts no Prefect


def test_chains_run_at_once(server: Server, folder: Path) -> None:
    code, _, stderr = autoopt(folder, "--workers", "2", PREFECT_API_URL=server.url)
    assert code == 0, stderr
    spans = [
        (row["start_time"], row["end_time"])
        for row in server.find("flow_runs")
        if row["parent_task_run_id"] is not None
    ]
    assert any(a != b and a[0] < b[1] and b[0] < a[1] for a in spans for b in spans)


def test_without_a_server_runs_share_one_of_their_own_that_asks_for_a_password(folder: Path) -> None:
    home = prepared(folder / "prefect")
    try:
        code, document, stderr = autoopt(folder)
        assert code == 0, stderr
        assert document["trials"]["ok"] == 3
        assert "Traceback" not in stderr
        server = json.loads((home / "autoopt-server.json").read_text())
        code, document, stderr = autoopt(folder, "--fresh")
        assert code == 0, stderr
        assert json.loads((home / "autoopt-server.json").read_text()) == server
        pages = server["api"].removesuffix("/api")
        note = f"Prefect shows the run at {pages} (password: {home}/prefect-password)"
        assert note in stderr
        user, _, password = (home / "prefect-password").read_text().strip().partition(":")
        asked = {"url": f"{server['api']}/flow_runs/filter", "json": {}, "timeout": HANG_SECONDS}
        rows = httpx.post(**asked, auth=(user, password)).json()
        assert [row["state_type"] for row in rows if row["name"].endswith(" · small")] == ["COMPLETED"] * 2
        assert httpx.post(**asked).status_code == 401
    finally:
        end_personal_server(home)


def test_a_server_that_does_not_answer_is_one_line(folder: Path) -> None:
    code, _, stderr = autoopt(folder, PREFECT_API_URL="http://user:canary@127.0.0.1:9/api")
    assert code == 3
    assert "prefect server start" in stderr.splitlines()[-1]
    assert "canary" not in stderr
    assert "Traceback" not in stderr


def test_a_sweep_with_its_models_and_their_chains(server: Server, folder: Path) -> None:
    (folder / "zoo.yaml").write_text("name: z\ndag: dag.yaml\nmodels:\n  - {path: model.onnx, search: {trials: 1}}\n")
    command = [sys.executable, "-m", "autoopt", "sweep", "zoo.yaml", "--json"]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    env = {**inherited, "AUTOOPT_HOME": str(folder / "home"), "PREFECT_API_URL": server.url}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    wait_until_shown(folder / "home")
    assert json.loads(done.stdout)["models"][0]["status"] == "ok"
    assert "INFO" not in done.stderr  # Prefect's own words are for its pages
    flows = {row["name"]: row for row in server.find("flow_runs")}
    [night] = [row for name, row in flows.items() if re.fullmatch(r"z · \d{4}-\d\d-\d\d \d\d:\d\d", name)]
    assert night["parent_task_run_id"] is None
    assert flows[f"{folder.name} · small"]["parent_task_run_id"] is not None
    rows = server.find("artifacts")
    [sweep] = [row for row in rows if row["key"] == "sweep-z"]
    assert sweep["description"] == "No regression in 1 model."
    artifacts = {row["key"]: row["data"] for row in rows}
    assert artifacts["progress-z"] == 100
    (model,) = json.loads(artifacts["models-z"])
    assert (model["model"], model["state"], model["since last good"]) == (folder.name, "ok", "new")
    assert model["run"] == json.loads(done.stdout)["models"][0]["run"]


def test_many_trials_of_a_chain_are_rounds(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "MAX_TRIALS", 1)
    _, document, _ = autoopt(folder, "--engine", "inline")
    api = PrefectApi(server.url)
    with open_store(None, folder / "home") as store:
        showing = Showing(store.owner, "", "cnn · small", ("model:cnn",), ("size",), 4)
        assert ShownRun(store, document["run"], "first", showing).update(api)
        resumed = replace(showing, earlier=(0, 1, 2, 3))
        assert ShownRun(store, document["run"], "resumed", resumed).update(api)
    rounds = {row["name"]: row["state_type"] for row in server.find("flow_runs") if "tidy -> quant" in row["name"]}
    assert rounds == {"tidy -> quant": "COMPLETED", "tidy -> quant · round 2": "COMPLETED"}
    shown = [row["name"] for row in server.find("task_runs") if row["name"].startswith("trial")]
    assert sorted(shown) == ["trial 0", "trial 1", "trial 2", "trial 3"]


EARLIER = """
from autoopt import deployments
from flows.nightly_sweep import nightly_sweep
from prefect.schedules import Cron
deployments._ensure_pools([])
schedule = Cron("0 3 * * *", timezone="UTC", active=True)
zoo = {"zoo": "mine.yaml"}
earlier = deployments._Deployment(nightly_sweep, deployments.MODELS, "autoopt", schedule=schedule, parameters=zoo)
deployments._deploy(earlier, keep_changes=False)
"""


def test_deployments_have_names_of_their_own_and_those_of_version_0_1_0_stay(server: Server, folder: Path) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    env = {**inherited, "AUTOOPT_HOME": str(folder / "home"), "PREFECT_API_URL": server.url}

    def python(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_SECONDS
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    which = "from autoopt.orchestrate.flow_runs.naming import chain_deployment; print(chain_deployment())"
    assert python(which) == "tune_chain/autoopt\n"
    python(EARLIER)
    names = python("from autoopt.deployments import deploy_all; print(*deploy_all())").split()
    assert names == [
        "optimize_model/optimize-model",
        "tune_chain/tune-chain",
        "nightly_sweep/sweep-zoo",
        "nightly_sweep/autoopt",
    ]
    assert python(which) == "tune_chain/tune-chain\n"
    earlier = httpx.get(f"{server.url}/deployments/name/nightly_sweep/autoopt", timeout=HANG_SECONDS).json()
    assert earlier["parameters"] == {"zoo": "mine.yaml"}
    assert [(one["schedule"]["cron"], one["active"]) for one in earlier["schedules"]] == [("0 3 * * *", True)]
