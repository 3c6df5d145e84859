"""Targets of work pools: a worker of Prefect executes their runs, in the same store."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import mlp, write
from children import HANG_SECONDS
from serving import Serving, alive, belonging, environment, eventually, serving

from autoopt.store import open_store
from autoopt.workers import Gate

pytestmark = pytest.mark.service

DAG = """\
name: two
model: mlp/model.onnx
TARGET
passes: {fold: constant_folding, clean: remove_unused, quant: {pass: dynamic_quantization, params: search}}
chains: [[fold, quant], [clean]]
constraints: []
search: {trials: 3}
measurement: {seconds: 0.2, replicas: 2, target_width: 1.0, rounds: 2}
"""
BOTH = "targets: [{name: here}, {name: board, work_pool: board}]"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with the work pool `board` and a worker for it, and the pool `idle` without one."""
    folder = tmp_path_factory.mktemp("pools")
    write(mlp(width=512), folder / "mlp")
    with serving(folder) as found:
        env = environment(folder, **api(found))
        for pool in ("board", "idle"):
            found.ask("POST", "work_pools/", {"name": pool, "type": "process"})
            deployed = [sys.executable, "-m", "autoopt", "serve", "--pool", pool]
            subprocess.run(deployed, cwd=folder, env=env, check=True, capture_output=True, timeout=HANG_SECONDS)
        worker = subprocess.Popen([sys.executable, "-m", "prefect", "worker", "start", "--pool", "board"], env=env)
        try:
            yield found
        finally:
            worker.terminate()
            worker.wait(HANG_SECONDS)


def api(served: Serving) -> dict[str, str]:
    return {"PREFECT_API_URL": f"{served.url}/api", "PREFECT_API_AUTH_STRING": served.password}


def write_dag(served: Serving, target: str, name: str = "dag.yaml") -> str:
    (served.folder / name).write_text(DAG.replace("TARGET", target))
    return name


def run(served: Serving, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autoopt", "run", *arguments]
    env = environment(served.folder, **env)
    return subprocess.run(command, cwd=served.folder, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)


def test_a_target_of_this_machine_and_one_of_a_pool(served: Serving) -> None:
    dag = write_dag(served, f"{BOTH}\nobjectives: [{{metric: size}}]")
    document = served.autoopt("run", dag, "--engine", "prefect", "--out", "both")
    assert [target["name"] for target in document["targets"]] == ["here", "board"]
    assert document["choice"]["name"] == "here", "only targets of one machine are compared"
    with open_store(None, served.folder / "home") as store:
        parts = store.runs.all(parent=document["run"])
        assert [part.settings["request"]["pool"] for part in parts].count("board") == 2
        (measuring,) = [part for part in parts if part.settings["request"]["candidates"]]
        assert len(store.trials.all(measuring.id)) == len(measuring.settings["request"]["candidates"]) > 0
    assert [row["deployment_id"] for row in served.find("flow_runs") if row["work_pool_name"] == "board"]
    assert (served.folder / "both" / "targets" / "board" / "run.py").is_file()
    assert served.autoopt("run", dag, "--engine", "prefect", "--out", "both")["reused"]


def test_a_sweep_takes_such_a_dag(served: Serving) -> None:
    dag = write_dag(served, f"{BOTH}\nobjectives: [{{metric: size}}]", "swept.yaml")
    (served.folder / "zoo.yaml").write_text(f"name: both\nmodels: [{dag}]\n")
    [model] = served.autoopt("sweep", "zoo.yaml", "--engine", "prefect", "--out", "swept")["models"]
    assert model["status"] == "ok", model["reason"]
    assert [target["name"] for target in model["targets"]] == ["here", "board"]


def test_a_pool_as_the_only_target_executes_the_whole_run(served: Serving) -> None:
    dag = write_dag(served, "target: {work_pool: board}")
    document = served.autoopt("run", dag, "--engine", "prefect", "--out", "alone")
    assert document["trials"]["ok"] > 0
    assert Path(document["best"]["path"]).is_relative_to(served.folder / "alone")
    assert (served.folder / "alone" / "run.py").is_file()


@pytest.mark.parametrize(
    ("target", "options", "remedy"),
    [
        (BOTH, (), "run it with --engine prefect"),
        ("target: {work_pool: board}", (), "run it with --engine prefect"),
        ("target: {work_pool: nowhere}", ("--engine", "prefect"), "create it with 'autoopt serve --pool nowhere'"),
        ("targets: [{name: a, work_pool: x}, {name: b, work_pool: y}]", ("--engine", "prefect"), "add a target of"),
    ],
)
def test_a_pool_that_cannot_be_reached_is_one_line(
    served: Serving, target: str, options: tuple[str, ...], remedy: str
) -> None:
    said = run(served, write_dag(served, target, "wrong.yaml"), *options)
    assert said.returncode == 2
    assert remedy in said.stderr.splitlines()[-1]


def test_a_worker_with_another_store_is_one_line(served: Serving) -> None:
    other = {**api(served), "AUTOOPT_HOME": str(served.folder / "other")}
    said = run(served, write_dag(served, "target: {work_pool: board}"), "--engine", "prefect", **other)
    assert said.returncode == 2
    assert "store" in said.stderr.splitlines()[-1]


def test_a_pool_without_a_worker_is_said_and_can_be_interrupted(served: Serving) -> None:
    dag = write_dag(served, "target: {work_pool: idle}", "idle.yaml")
    process = subprocess.Popen(
        [sys.executable, "-m", "autoopt", "run", dag, "--engine", "prefect"],
        cwd=served.folder, env=environment(served.folder), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any("prefect worker start --pool idle" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_SECONDS) == 130


def test_cancel_of_a_run_ends_its_part_in_a_pool(served: Serving) -> None:
    dag = write_dag(served, f"{BOTH}\nobjectives: [{{metric: latency_p50}}]", "cancelled.yaml")
    run = served.start("optimize_model", dag=str(served.folder / dag))
    part = eventually(lambda: [row for row in served.children_of(run) if row["work_pool_name"] == "board"])[0]["id"]
    with Gate(served.folder / "tmp").measuring():  # so that it does not end by itself
        eventually(lambda: served.get(f"flow_runs/{part}")["state_type"] == "RUNNING")
        served.set_state(run, type="CANCELLING")
        assert served.ended(run)["state_type"] == "CANCELLED"
        assert served.ended(part)["state_type"] == "CANCELLED"
        assert eventually(lambda: not any(map(alive, belonging(served.folder, "prefect.engine"))))
        assert not any(map(alive, belonging(served.folder, "workers/child.py")))
