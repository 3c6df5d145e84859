"""A Prefect server that is restarted, workers that die before they begin, machines that are busy with other work."""

from __future__ import annotations

import contextvars
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders import cnn, mlp, write
from children import HANG_SECONDS
from ports import free_port
from receiving import receiver
from remote_pool import bare_server, known
from serving import Serving, alive, belonging, eventually, process_of, processes_of, serving

from autoopt.orchestrate.server import heartbeats, notifications, outages

pytestmark = pytest.mark.service

SCRIPT = '''\
import time
from pathlib import Path

from autoopt import register

HERE = Path(__file__).parent


@register("slow")
def slow(model, size: int = 1):
    """Waits in its n-th call while there is a file `hold<n>`."""
    with (HERE / "calls.txt").open("a") as calls:
        calls.write(f"{size}\\n")
    number = len((HERE / "calls.txt").read_text().split())
    until = time.monotonic() + 300
    while (HERE / f"hold{number}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    model.graph.node[0].doc_string = f"size {size}"
    return model
'''
DAG = """\
name: slow
user_script: script.py
passes: {slow: {pass: slow, params: {size: {search: [1, 2, 3]}}}}
chains: [[slow]]
objectives: [{metric: size}]
constraints: []
"""
LATENCY = "autoopt.measure.worker:latency"
RUNTIME = "autoopt.model.worker:runtime"


def test_a_deployed_run_goes_on_while_the_server_is_restarted(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write(mlp(), tmp_path / "mlp")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "hold1").touch()
    (tmp_path / "hold3").touch()
    port = free_port()
    kept = tmp_path_factory.mktemp("server")  # outside of the folder whose processes end with `serve`
    with ExitStack() as first, ExitStack() as second:
        env = first.enter_context(bare_server(kept, port))
        with serving(tmp_path, PREFECT_API_URL=env["PREFECT_API_URL"]) as found:
            served = replace(found, url=f"http://127.0.0.1:{port}")
            set_patience(served, heartbeats.AUTOMATION, 3600)  # a busy machine takes long to start the server
            asked = {"dag": str(tmp_path / "dag.yaml"), "model": str(tmp_path / "mlp/model.onnx"), "workers": 1}
            run = served.start("optimize_model/optimize-model", **asked)
            eventually(lambda: calls(tmp_path) == 1)
            first.close()
            log = tmp_path / "home" / "logs" / "autoopt-models.log"
            eventually(lambda: "the Prefect server does not answer" in log.read_text())
            (tmp_path / "hold1").unlink()
            eventually(lambda: calls(tmp_path) == 3)  # trials are asked for and told meanwhile
            second.enter_context(bare_server(kept, port))
            eventually(lambda: "the Prefect server is back" in log.read_text())
            (tmp_path / "hold3").unlink()
            ended = served.ended(run)
            assert ended["state_type"] == "COMPLETED", ended["state"]["message"]
            [chain] = served.children_of(run)
            served.completed(chain["id"])
            assert served.autoopt("best")["trials"]["ok"] == 3


def test_a_client_asks_an_absent_server_again_at_short_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    monkeypatch.setattr(outages, "LONGEST_WAIT_SECONDS", 0.05)
    outages.bound_waits()
    port = free_port()
    with ExitStack() as stack:
        with bare_server(tmp_path, port) as env:
            stack.enter_context(known(env))
            stack.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1000}))
            client = stack.enter_context(get_client(sync_client=True))
            before = client.api_version()
        with refusing(port) as requests:
            answer = beside(client.api_version)
            # With doubled intervals, these would take half an hour.
            eventually(lambda: len(requests) > 10)
        with bare_server(tmp_path, port):
            assert answer.result(HANG_SECONDS) == before


@contextmanager
def refusing(port: int) -> Iterator[list[str]]:
    """A proxy whose server is away; gives the paths that it was asked for."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_error(503)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield requests
        server.shutdown()


def test_a_night_whose_process_is_killed_is_told_and_goes_on_where_it_was(tmp_path: Path) -> None:
    write(mlp(), tmp_path / "one")
    write(cnn(), tmp_path / "two")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "hold5").touch()
    with receiver() as (url, messages), serving(tmp_path) as served:
        zoo = f"name: killed\ndag: dag.yaml\nmodels: [one, two]\nnotify: ['{url}']\n"
        (tmp_path / "zoo.yaml").write_text(zoo)
        served.autoopt("sweep", "zoo.yaml", "--schedule", "0 2 * * *")
        for automation in (heartbeats.CONTINUATION, notifications.LOST.format("killed")):
            set_patience(served, automation, 10)  # the least that Prefect allows
        night = served.start("nightly_sweep/killed")
        eventually(lambda: calls(tmp_path) == 5)
        served.ask("PATCH", "work_pools/autoopt-models", {"is_paused": True})
        os.kill(process_of(served, night), signal.SIGKILL)
        assert served.ended(night)["state_type"] == "CRASHED"
        [message] = eventually(lambda: messages)
        eventually(lambda: served.get(f"flow_runs/{night}")["state_name"] == "AwaitingRetry")
        (tmp_path / "hold5").unlink()
        served.ask("PATCH", "work_pools/autoopt-models", {"is_paused": False})
        ended = served.completed(night)
        nights = served.autoopt("nights", "killed")["nights"]
    told = json.loads(message)
    assert told["title"] == f"{ended['name']} crashed and does not continue"
    assert told["text"].endswith(f"/runs/flow-run/{night}")
    assert (ended["run_count"], ended["state"]["message"]) == (2, "No regression in 2 models.")
    assert len(nights) == 1
    assert calls(tmp_path) in (6, 7), "the first model is not searched again; the trial under way may be"
    assert len(messages) == 1


def test_a_suspended_night_has_no_process_and_resumes_from_the_store(tmp_path: Path) -> None:
    write(mlp(), tmp_path / "one")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "zoo.yaml").write_text("name: paused\ndag: dag.yaml\nmodels: [one]\n")
    (tmp_path / "hold2").touch()
    with serving(tmp_path) as served:
        served.autoopt("sweep", "zoo.yaml", "--schedule", "0 2 * * *")
        night = served.start("nightly_sweep/paused")
        eventually(lambda: calls(tmp_path) == 2)
        served.suspend(night)
        eventually(lambda: not processes_of(served, night))
        assert served.get(f"flow_runs/{night}")["state_name"] == "Suspended"
        assert [child["state_type"] for child in served.children_of(night)] == ["CANCELLED"]
        (tmp_path / "hold2").unlink()
        served.ask("POST", f"flow_runs/{night}/resume", {})
        ended = served.completed(night)
        nights = served.autoopt("nights", "paused")["nights"]
    assert ended["state"]["message"] == "No regression in 1 model."
    assert len(nights) == 1
    assert calls(tmp_path) in (3, 4), "the first trial is not repeated; the one under way may be"


def set_patience(served: Serving, automation: str, seconds: int) -> None:
    """Have an automation wait that long for the event that it expects."""
    [found] = [row for row in served.find("automations") if row["name"] == automation]
    body = {name: found[name] for name in ("name", "description", "trigger", "actions")}
    served.ask("PUT", f"automations/{found['id']}", {**body, "trigger": {**body["trigger"], "within": seconds}})


def test_chains_that_wait_make_room_for_others(tmp_path: Path) -> None:
    write(mlp(), tmp_path / "mlp")
    (tmp_path / "script.py").write_text(SCRIPT)
    two = "{a: {pass: slow, params: {size: 1}}, b: {pass: slow, params: {size: 2}}}"
    text = DAG.replace("{slow: {pass: slow, params: {size: {search: [1, 2, 3]}}}}", two)
    (tmp_path / "dag.yaml").write_text(text.replace("[[slow]]", "[[a], [b]]"))
    with serving(tmp_path, "--limit", "1") as served:
        asked = {"dag": str(tmp_path / "dag.yaml"), "model": str(tmp_path / "mlp/model.onnx"), "workers": 1}
        run = served.start("optimize_model/optimize-model", **asked)
        served.completed(run)
        assert served.autoopt("best")["trials"]["ok"] == 2
        first, second = served.children_of(run)
        assert {first["name"], second["name"]} == {"a", "b"}
        assert datetime.fromisoformat(first["end_time"]) <= datetime.fromisoformat(second["start_time"])


@pytest.mark.soak
def test_after_a_reboot_runs_end_as_crashed_and_retry_picks_up(tmp_path: Path) -> None:
    write(mlp(), tmp_path / "mlp")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "hold2").touch()
    with serving(tmp_path) as served:
        asked = {"dag": str(tmp_path / "dag.yaml"), "model": str(tmp_path / "mlp/model.onnx"), "workers": 1}
        run = served.start("optimize_model/optimize-model", **asked)
        eventually(lambda: calls(tmp_path) == 2)
        [chain] = served.children_of(run)
        heirs = belonging(tmp_path, "autoopt.orchestrate.server.process_reaper")  # would end the others in good order
        for process in [*heirs, *belonging(tmp_path)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        eventually(lambda: not [process for process in belonging(tmp_path) if alive(process)])
    (tmp_path / "hold2").unlink()
    with serving(tmp_path) as served:
        assert served.ended(run)["state_type"] == "CRASHED"
        assert served.ended(chain["id"])["state_type"] == "CRASHED"
        served.retry(run)
        assert eventually(lambda: served.get(f"flow_runs/{run}")["run_count"] == 2)
        served.completed(run)
        assert served.autoopt("best")["trials"]["ok"] == 3
    done = (tmp_path / "calls.txt").read_text().split()
    assert len(done) == 4, "the first trial is not repeated, the one under way is"
    assert done[1] == done[2]


def calls(folder: Path) -> int:
    path = folder / "calls.txt"
    return len(path.read_text().split()) if path.exists() else 0


def beside(work: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    return future
