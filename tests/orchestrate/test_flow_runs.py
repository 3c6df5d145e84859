"""Runs as Prefect flow runs on a real server: true states, Cancel, Retry, deaths of processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import serving
from builders import mlp, write
from children import HANG_SECONDS
from onnx import helper
from ports import free_port
from prefect_server import ended, prepared, running_server
from serving import Api, eventually
from watching import all_gone

pytestmark = pytest.mark.service

SCRIPT = '''\
import os
import time
from pathlib import Path

from autoopt import register

HERE = Path(__file__).parent


@register("held")
def held(model, size: int = 1):
    """Notes its call; waits while there is a file `hold<size>`, and fails while there is one `broken<size>`."""
    with (HERE / "calls.txt").open("a") as calls:
        calls.write(f"{size} {os.getpid()}\\n")
    while (HERE / f"hold{size}").exists():
        time.sleep(0.05)
    if (HERE / f"broken{size}").exists():
        raise ValueError("broken")
    model.graph.node[0].doc_string = "x" * size
    return model
'''
PASSES = {
    "tidy": "{pass: simplify}",
    "quant": "{pass: dynamic_quantization, params: {weight_type: {search: [QInt8, QUInt8]}}}",
    "odd": "{pass: fix_input_shape, params: {shapes: {nothing: [1, 2]}}}",
    "held": "{pass: held, params: {size: {search: [1, 2, 3]}}}",
}


def dag(*chains: str) -> str:
    """A DAG with these chains, in which every point is tried, chain by chain in turns."""
    passes = {name: text for name, text in PASSES.items() if name in " ".join(chains)}
    return "\n".join(
        (
            "name: small",
            "user_script: script.py",
            "passes:",
            *(f"  {name}: {text}" for name, text in passes.items()),
            f"chains: [{', '.join(f'[{chain}]' for chain in chains)}]",
            "objectives: [{metric: size}]",
            "constraints: []",
            "search: {strategy: per-chain, sampler: exhaustive}",
            "measurement: {seconds: 0.2, replicas: 2, target_width: 1.0, rounds: 2}",
        )
    )


SERVE = """\
from prefect import serve
from flows.nightly_sweep import nightly_sweep
from flows.optimize_model import optimize_model
from flows.tune_chain import tune_chain
chains = tune_chain.to_deployment("test", tags=["autoopt"])
serve(chains, *(flow.to_deployment("test", tags=["autoopt"]) for flow in (nightly_sweep, optimize_model)), limit=10)
"""
RUN = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "prefect", "--json")


class Server(Api):
    """A Prefect server, seen without what other tests left on it."""

    def states(self) -> dict[str, str]:
        """The state of each flow run by name; of one with several, that of the latest."""
        rows = sorted(self.find("flow_runs"), key=lambda row: row["created"])
        return {row["name"]: row["state_type"] for row in rows}

    def end(self, flow_run: str) -> str:
        """Wait until a flow run has ended; returns its state."""
        return str(self.ended(flow_run)["state_type"])


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env = {**kept, "PREFECT_HOME": str(prepared(folder / "prefect"))}
    with running_server(env, free_port(), folder / "server.log") as url:
        yield Server(url.removesuffix("/api"))


@pytest.fixture
def server(shared_server: Server) -> Server:
    before = [row["id"] for what in ("flow_runs", "task_runs", "artifacts", "logs") for row in shared_server.find(what)]
    return Server(shared_server.url, before=frozenset(before))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = mlp(width=32)
    first = model.graph.node[0]  # tidy has an Identity to remove; else its chain would repeat the source
    model.graph.node.insert(0, helper.make_node("Identity", [first.input[0]], ["same"]))
    model.graph.node[1].input[0] = "same"
    write(model, tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "dag.yaml").write_text(dag("tidy, quant", "tidy", "odd", "held"))
    (tmp_path / "zoo.yaml").write_text("name: z\ndag: dag.yaml\nmodels: [model.onnx]\n")
    return tmp_path


def environment(folder: Path, server: Server) -> dict[str, str]:
    """Ours, with the server and everything of autoopt in the folder."""
    quiet = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    return serving.environment(
        folder, PREFECT_HOME=str(folder / "prefect"), PREFECT_API_URL=f"{server.url}/api", **quiet
    )


@contextmanager
def command(folder: Path, server: Server, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`autoopt` with its output in `said` and `stderr`."""
    with ExitStack() as stack:
        out, errors = (stack.enter_context((folder / name).open("wb")) for name in ("said", "stderr"))
        words = [sys.executable, "-m", "autoopt", *arguments]
        process = subprocess.Popen(words, cwd=folder, env=environment(folder, server), stdout=out, stderr=errors)
        yield stack.enter_context(ended(process))


def autoopt(folder: Path, server: Server, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run `autoopt` to its end; exit code, JSON document, standard error."""
    with command(folder, server, *arguments) as process:
        code = process.wait(HANG_SECONDS)
    return code, json.loads((folder / "said").read_text() or "{}"), (folder / "stderr").read_text()


@contextmanager
def served(folder: Path, server: Server) -> Iterator[int]:
    """The deployments, executed by processes of this machine; gives the id of their parent."""
    with (folder / "serve.log").open("wb") as log:
        words = [sys.executable, "-c", SERVE]
        process = subprocess.Popen(words, cwd=folder, env=environment(folder, server), stdout=log, stderr=log)
        with ended(process):
            yield process.pid


def process_of_flow(parent: int) -> psutil.Process:
    """The process of the only deployed flow run."""
    found = []
    for process in psutil.Process(parent).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # another one that ended meanwhile
            if "prefect.engine" in process.cmdline():
                found.append(process)
    [process] = found
    return process


def calls(folder: Path) -> list[tuple[str, int]]:
    """The calls of the user's pass: its parameter and the process."""
    file = folder / "calls.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(size, int(pid)) for size, pid in map(str.split, lines)]


def test_each_chain_is_a_flow_run_and_each_trial_a_task_run(server: Server, folder: Path) -> None:
    code, document, stderr = autoopt(folder, server, *RUN)
    assert code == 0, stderr
    assert document["trials"] == {"total": 7, "ok": 6, "refused": 1, "infeasible": 0}
    flows = {row["name"]: row for row in server.find("flow_runs")}
    model = f"{folder.name} · small"
    assert server.states() == {
        model: "COMPLETED",
        "tidy -> quant": "COMPLETED",
        "tidy": "COMPLETED",
        "odd": "FAILED",  # one chain without a good trial does not end its model
        "held": "COMPLETED",
    }
    assert flows["held"]["state"]["message"].startswith("3 of 3 trials ok")
    assert {row["name"] for row in server.children_of(flows[model]["id"])} == set(flows) - {model}
    assert {tag.partition(":")[0] for tag in flows["tidy"]["tags"]} == {"autoopt", "model", "dag", "target", "run"}
    trials = {row["name"]: row["state_type"] for row in server.find("task_runs") if row["name"].startswith("trial")}
    assert sorted(trials) == [f"trial {number}" for number in range(7)]
    assert sorted(trials.values()) == ["COMPLETED"] * 6 + ["FAILED"]
    key = folder.name.replace("_", "-")
    artifacts = {row["key"]: row for row in server.find("artifacts")}
    assert {f"result-{key}-small", f"progress-{key}-small", f"trials-{key}-small-held"} <= set(artifacts)
    assert artifacts[f"trials-{key}-small-held"]["flow_run_id"] == flows["held"]["id"]

    code, again, stderr = autoopt(folder, server, *RUN)
    assert code == 0, stderr
    assert again["reused"]
    assert len(server.find("flow_runs")) == len(flows), "what the store answers is no flow run"


def test_a_chain_ends_when_the_search_cannot_come_back_to_it(server: Server, folder: Path) -> None:
    (folder / "hold2").touch()
    with command(folder, server, *RUN, "--workers", "1") as process:
        meanwhile = {"tidy": "COMPLETED", "odd": "FAILED", "tidy -> quant": "COMPLETED", "held": "RUNNING"}
        eventually(lambda: meanwhile.items() <= server.states().items())
        (folder / "hold2").unlink()
        assert process.wait(HANG_SECONDS) == 0, (folder / "stderr").read_text()
    assert set(server.states().values()) == {"COMPLETED", "FAILED"}


def test_ctrl_c_ends_the_flow_runs_as_cancelled_with_their_workers(server: Server, folder: Path) -> None:
    (folder / "hold2").touch()
    with command(folder, server, *RUN) as process:
        eventually(lambda: server.states().get("held") == "RUNNING" and "2" in dict(calls(folder)))
        workers = [worker for _, worker in calls(folder)]
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_SECONDS) == 130
    states = server.states()
    assert states[f"{folder.name} · small"] == states["held"] == "CANCELLED"
    assert all_gone(workers)


def test_cancel_ends_a_deployed_run_with_its_chains_and_workers(server: Server, folder: Path) -> None:
    (folder / "hold2").touch()
    with served(folder, server):
        run = server.start("optimize_model", dag=str(folder / "dag.yaml"), model=str(folder / "model.onnx"))
        eventually(lambda: server.states().get("held") == "RUNNING" and "2" in dict(calls(folder)))
        workers = [worker for _, worker in calls(folder)]
        server.set_state(run, type="CANCELLING")
        assert server.end(run) == "CANCELLED"
        assert eventually(lambda: server.states()["held"] == "CANCELLED")
        assert all_gone(workers)


def test_retry_executes_only_the_trials_that_failed(server: Server, folder: Path) -> None:
    (folder / "broken2").touch()
    with served(folder, server):
        run = server.start("optimize_model", dag=str(folder / "dag.yaml"), model=str(folder / "model.onnx"))
        assert server.end(run) == "COMPLETED"
        before = {row["id"] for row in server.find("flow_runs")}
        tasks = {row["id"] for row in server.find("task_runs")}
        done = len(calls(folder))
        (folder / "broken2").unlink()
        assert server.retry(run)["state_type"] == "COMPLETED"
    assert [size for size, _ in calls(folder)[done:]] == ["2"]
    [chain] = [row for row in server.find("flow_runs") if row["id"] not in before]
    assert (chain["name"], chain["state"]["message"]) == ("held", "1 of 1 trials ok, 1 executed now")
    again = [row for row in server.find("task_runs") if row["id"] not in tasks and row["name"].startswith("trial")]
    assert [row["state_type"] for row in again] == ["COMPLETED"]


def test_a_killed_run_crashes_with_its_workers_and_retry_goes_on(server: Server, folder: Path) -> None:
    (folder / "hold2").touch()
    with served(folder, server) as parent:
        paths = {"dag": str(folder / "dag.yaml"), "model": str(folder / "model.onnx")}
        run = server.start("optimize_model", **paths, workers=1)
        eventually(lambda: server.states().get("held") == "RUNNING" and "2" in dict(calls(folder)))
        done = calls(folder)
        process_of_flow(parent).kill()
        assert server.end(run) == "CRASHED"
        assert all_gone([worker for _, worker in done])
        (folder / "hold2").unlink()
        assert server.retry(run)["state_type"] == "COMPLETED"
    assert server.states()["held"] == "COMPLETED", "the flow run that the kill left behind goes on"
    assert sorted(size for size, _ in calls(folder)[len(done) :]) == ["2", "3"], "what had ended is not repeated"


AUTOMATION = """
from autoopt.orchestrate import automations
automations.SILENT_SECONDS = 45  # longer than the 30 s between two heartbeats
automations.ensure_crash_automation()
"""


def test_flow_runs_of_a_killed_command_crash_and_resume_goes_on(server: Server, folder: Path) -> None:
    env = environment(folder, server)
    subprocess.run([sys.executable, "-c", AUTOMATION], cwd=folder, env=env, check=True, timeout=HANG_SECONDS)
    (folder / "dag.yaml").write_text(dag("held"))
    (folder / "hold2").touch()
    with command(folder, server, *RUN, "--workers", "1") as process:
        eventually(lambda: server.states().get("held") == "RUNNING" and "2" in dict(calls(folder)))
        done = calls(folder)
        process.kill()
    assert all_gone([worker for _, worker in done])
    eventually(lambda: set(server.states().values()) == {"CRASHED"})
    for automation in server.find("automations"):
        server.ask("DELETE", f"automations/{automation['id']}")
    (folder / "hold2").unlink()
    code, _, stderr = autoopt(folder, server, "resume", "--json")
    assert code == 0, stderr
    assert sorted(size for size, _ in calls(folder)[len(done) :]) == ["2", "3"], "what had ended is not repeated"


def test_a_sweep_with_its_models_and_their_chains(server: Server, folder: Path) -> None:
    code, document, stderr = autoopt(folder, server, "sweep", "zoo.yaml", "--json", "--engine", "prefect")
    assert code == 0, stderr
    assert document["models"][0]["status"] == "ok"
    assert "INFO" not in stderr  # Prefect's own words are for its pages
    flows = {row["name"]: row for row in server.find("flow_runs")}
    [night] = [row for name, row in flows.items() if re.fullmatch(r"z · \d{4}-\d\d-\d\d \d\d:\d\d", name)]
    assert (night["state_type"], night["parent_task_run_id"]) == ("COMPLETED", None)
    assert flows[f"{folder.name} · small"]["parent_task_run_id"] is not None
    rows = server.find("artifacts")
    [sweep] = [row for row in rows if row["key"] == "sweep-z"]
    assert sweep["description"] == "No regression in 1 model."
    assert f"| {document['models'][0]['run']} |" in sweep["data"]


def test_the_retry_of_a_killed_night_goes_on_in_its_second_model(server: Server, folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    (folder / "dag.yaml").write_text(dag("held"))
    (folder / "quick.yaml").write_text(dag("tidy"))
    (folder / "zoo.yaml").write_text(
        "name: z\ndag: dag.yaml\nmodels: [{path: model.onnx, dag: quick.yaml}, other/model.onnx]\n"
    )
    (folder / "hold2").touch()
    with served(folder, server) as parent:
        night = server.start("nightly_sweep", zoo=str(folder / "zoo.yaml"), workers=1)
        eventually(lambda: server.states().get("held") == "RUNNING" and "2" in dict(calls(folder)))
        done = calls(folder)
        process_of_flow(parent).kill()
        assert server.end(night) == "CRASHED"
        assert all_gone([worker for _, worker in done])
        (folder / "hold2").unlink()
        assert server.retry(night)["state_type"] == "COMPLETED"
    names = [row["name"] for row in server.find("flow_runs")]
    assert names.count("tidy") == 1, "the first model was done"
    # Prefect may mark what the kill interrupted as cancelled; nothing stays open.
    assert set(server.states().values()) <= {"COMPLETED", "CANCELLED"}
    assert sorted(size for size, _ in calls(folder)[len(done) :]) == ["2", "3"]


def test_chains_can_be_deployed_runs_with_a_retry_of_their_own(server: Server, folder: Path) -> None:
    (folder / "broken2").touch()
    (folder / "dag.yaml").write_text(dag("held"))
    with served(folder, server):
        paths = {"dag": str(folder / "dag.yaml"), "model": str(folder / "model.onnx")}
        run = server.start("optimize_model", **paths, chains="deployed")
        assert server.end(run) == "COMPLETED"
        [chain] = [row for row in server.find("flow_runs") if row["name"] == "held"]
        assert chain["deployment_id"]
        assert server.end(chain["id"]) == "COMPLETED"
        done = len(calls(folder))
        (folder / "broken2").unlink()
        assert server.retry(chain["id"])["state_type"] == "COMPLETED"
    assert [size for size, _ in calls(folder)[done:]] == ["2"]


def test_a_run_goes_on_while_the_server_is_restarted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    port = free_port()
    away = Server(f"http://127.0.0.1:{port}")
    env = {**environment(folder, away), "PREFECT_HOME": str(prepared(tmp_path_factory.mktemp("away") / "prefect"))}
    (folder / "dag.yaml").write_text(dag("held"))
    (folder / "hold2").touch()
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(running_server(env, port, folder / "server.log"))
        process = second.enter_context(command(folder, away, *RUN, "--workers", "1"))
        eventually(lambda: "2" in dict(calls(folder)))
        first.close()
        (folder / "hold2").unlink()
        eventually(lambda: "3" in dict(calls(folder)))
        second.enter_context(running_server(env, port, folder / "server.log"))
        assert process.wait(HANG_SECONDS) == 0, (folder / "stderr").read_text()
        assert set(away.states().values()) == {"COMPLETED"}


def test_a_server_that_does_not_answer_is_one_line(folder: Path) -> None:
    code, _, stderr = autoopt(folder, Server("http://user:canary@127.0.0.1:9"), *RUN)
    assert code in (2, 3)
    assert "Prefect server" in stderr.splitlines()[-1]
    assert "canary" not in stderr
    assert "Traceback" not in stderr
