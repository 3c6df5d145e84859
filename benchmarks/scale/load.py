"""Load on Prefect's server and database: a night of small model runs under `autoopt serve`.

    python -m benchmarks.scale.load [--models 15] [--trials 16] [--places 2] [--minutes M]
                                    [--database postgresql+asyncpg://...] [--folder FOLDER]

Each model has four chains whose passes only sleep: 15 models are 75 flow runs and 240 trials. Prints what the server
did with them: errors in its log, flow runs that ended without their event, alarms of the automation for dead flow runs,
the slowest of the reads that a page makes, one a second, and the longest run of a model.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from onnx import TensorProto, helper, numpy_helper

CHAINS = 4
SCRIPT = '''\
import time

from autoopt import register


@register("sleeper")
def sleeper(model, seconds: float = 1.0, number: int = 0):
    """Sleep and change nothing."""
    time.sleep(seconds)
'''
Row = dict[str, Any]
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
PAGE = 200
BUSY = 503
"""Prefect's answer while its database is busy; its own clients repeat the request."""
EVENT_SECONDS = 60.0
"""The server records events with a delay; those that have not arrived so long after the last flow run count as lost."""


def model(path: Path) -> Path:
    """Write a model of one MatMul; return its path."""
    weights = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", shapes[:1], shapes[1:], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    path.write_bytes(proto.SerializeToString())
    return path


def dag(folder: Path, trials: int, seconds: float) -> dict[str, Any]:
    """Return a DAG of four chains with one sleeping pass each; trials differ in a parameter without effect."""
    numbers = {"search": list(range(trials // CHAINS))}
    return {
        "name": "sleepers",
        "user_script": str(folder / "sleepers_script.py"),
        "passes": {
            f"s{c}": {"pass": "sleeper", "params": {"seconds": seconds + c * 1e-6, "number": numbers}}
            for c in range(CHAINS)
        },
        "chains": [[f"s{c}"] for c in range(CHAINS)],
        "constraints": [],
        "search": {"strategy": "per-chain", "sampler": "exhaustive", "trials": trials},
        "measurement": {"seconds": 0.2, "replicas": 2, "target_width": 1.0},
    }


@dataclass
class Reader:
    """Reads the list of flow runs once a second, as a page does; keeps the slowest read and the failures."""

    client: httpx.Client
    slowest: float = 0.0
    failures: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def reading(self) -> Iterator[None]:
        thread = threading.Thread(target=self._read, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _read(self) -> None:
        while not self._stop.wait(1.0):
            began = time.monotonic()
            try:
                self.client.post("/flow_runs/filter", json={"limit": PAGE}).raise_for_status()
            except httpx.HTTPError:
                self.failures += 1
            self.slowest = max(self.slowest, time.monotonic() - began)


@contextmanager
def serve(folder: Path, database: str | None, places: int) -> Iterator[httpx.Client]:
    """Run `autoopt serve` with its home in `folder`; yield a client of its API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AUTOOPT_"))}
    own = {"AUTOOPT_HOME": str(folder / "home"), "AUTOOPT_GATE": str(folder), "AUTOOPT_SCRIPTS": str(folder)}
    if database:
        own["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database
    command = [sys.executable, "-m", "autoopt", "serve", "--port", str(port), "--models", str(places)]
    process = subprocess.Popen(command, cwd=folder, env={**inherited, **own}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("ready"):
                break
        user, _, password = json.loads((folder / "home" / "prefect.json").read_text())["auth"].partition(":")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api", auth=(user, password), timeout=180) as client:
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(90)


def start_models(client: httpx.Client, folder: Path, options: argparse.Namespace) -> None:
    """Start a run for each of `options.models` models that differ in their parameter names only."""
    [deployment] = all_rows(client, "/deployments/filter", {})
    for number in range(options.models):
        path = model(folder / f"model{number}.onnx")
        pipeline = {**dag(folder, options.trials, options.seconds + number * 1e-4), "name": f"sleepers{number}"}
        parameters = {"dag": pipeline, "model": str(path), "workers": 2, "search": {"minutes": options.minutes}}
        body = {"parameters": parameters, "idempotency_key": pipeline["name"]}
        while client.post(f"/deployments/{deployment['id']}/create_flow_run", json=body).status_code == BUSY:
            time.sleep(1)


def all_rows(client: httpx.Client, path: str, body: Row) -> list[Row]:
    """Read all pages of a filter."""
    rows: list[Row] = []
    while True:
        answer = client.post(path, json={**body, "limit": PAGE, "offset": len(rows)}).raise_for_status().json()
        rows += answer
        if len(answer) < PAGE:
            return rows


def wait_for_models(client: httpx.Client) -> list[Row]:
    """All flow runs, once those of models have ended; a request that fails is repeated."""
    while True:
        time.sleep(2)
        try:
            rows = all_rows(client, "/flow_runs/filter", {})
        except httpx.HTTPError:
            continue
        if all(row["state_type"] in ENDED for row in rows):
            return rows


def events_named(client: httpx.Client, prefixes: list[str]) -> list[Row]:
    """Events whose names begin with one of `prefixes`, of the last day."""
    body = {"filter": {"event": {"prefix": prefixes}}, "limit": 50}
    answer = client.post("/events/filter", json=body).raise_for_status().json()
    rows: list[Row] = answer["events"]
    while answer.get("next_page"):
        answer = client.get(answer["next_page"]).raise_for_status().json()
        rows += answer["events"]
    return rows


def without_event(client: httpx.Client, ended: set[str]) -> int:
    """Number of ended flow runs whose terminal event has not arrived in time."""
    names = [f"prefect.flow-run.{state.capitalize()}" for state in ENDED]
    deadline = time.monotonic() + EVENT_SECONDS
    while True:
        told = {row["resource"]["prefect.resource.id"] for row in events_named(client, names)}
        missing = len(ended - told)
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(3)


def longest_run(rows: list[Row]) -> float:
    """Longest time of a model's flow run in seconds."""
    return max(row["total_run_time"] for row in rows if row["deployment_id"])


def measure(folder: Path, options: argparse.Namespace) -> str:
    """Run the load once; returns the line of counts."""
    (folder / "sleepers_script.py").write_text(SCRIPT)
    began = time.monotonic()
    with serve(folder, options.database, options.places) as client:
        reader = Reader(client)
        with reader.reading():
            start_models(client, folder, options)
            rows = wait_for_models(client)
        seconds = time.monotonic() - began
        states: dict[str, int] = {}
        for row in rows:
            states[row["state_type"]] = states.get(row["state_type"], 0) + 1
        lost = without_event(client, {f"prefect.flow-run.{row['id']}" for row in rows})
        alarms = events_named(client, ["prefect.automation.action.triggered"])
    log = (folder / "home" / "logs" / "server.log").read_text()
    errors = len(re.findall(r"\bERROR\b", log))
    counts = [
        f"{len(rows)} flow runs in {seconds:.0f} s ({states}): {errors} errors in the server's log",
        f"{lost} of {len(rows)} ended without their event",
        f"{len(alarms)} alarms for dead flow runs",
        f"slowest read {reader.slowest:.1f} s",
        f"{reader.failures} reads failed",
        f"longest run of a model {longest_run(rows):.0f} s",
    ]
    return ", ".join(counts)


def main() -> None:
    """Measure and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=15)
    parser.add_argument("--trials", type=int, default=16, help="trials of each model, a multiple of 4")
    parser.add_argument("--seconds", type=float, default=0.1, help="time of a trial")
    parser.add_argument("--minutes", type=float, help="limit of each model's run")
    parser.add_argument("--places", type=int, default=2, help="runs of models at once")
    parser.add_argument("--database", help="PREFECT_SERVER_DATABASE_CONNECTION_URL; SQLite without it")
    parser.add_argument("--folder", type=Path, help="where the home with its logs stays")
    options = parser.parse_args()
    if options.folder is not None:
        print(measure(options.folder.resolve(), options), flush=True)
        return
    with tempfile.TemporaryDirectory() as name:
        print(measure(Path(name), options), flush=True)


if __name__ == "__main__":
    main()
