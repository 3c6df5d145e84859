"""Scheduling overhead of deployed flow runs: chains of passes that only sleep, run under `autoopt serve`.

    python -m benchmarks.scale.deployed [--trials 24] [--seconds 20] [--workers 1 2 4] [--places N]

Prints for each number of workers: the duration of the search in seconds (from the first chain's flow run to the end of
the last trial), its efficiency (time slept / workers / duration), and the overhead per trial, chain and model.
`--workers` sets the number of concurrent trials of the run. `--places` is passed to `autoopt serve --limit`: the number
of chains that may have a process at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from autoopt.orchestrate.server.access import PASSWORD_FILE
from benchmarks.scale.sleepers import CHAINS, SCRIPT, dag, model

Row = dict[str, Any]


@contextmanager
def serve(folder: Path, places: int | None) -> Iterator[httpx.Client]:
    """Run `autoopt serve` with its home in `folder`; yield a client of its API, with the password made for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "AUTOOPT_"))}
    command = [sys.executable, "-m", "autoopt", "serve", "--port", str(port), "--scripts", str(folder)]
    command += ["--limit", str(places)] if places else []
    # A gate of its own, so that it does not wait for other measurements on this machine.
    own = {"AUTOOPT_HOME": str(folder / "home"), "AUTOOPT_GATE": str(folder)}
    process = subprocess.Popen(command, cwd=folder, env={**inherited, **own}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("ready"):
                break
        user, _, password = (folder / "home" / PASSWORD_FILE).read_text().strip().partition(":")
        api = f"http://127.0.0.1:{port}/api"
        with httpx.Client(base_url=api, auth=(user, password), timeout=300) as client:
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(90)


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def measure_run(folder: Path, workers: int, trials: int, seconds: float, places: int | None) -> dict[str, float]:
    """Run once and return the durations in seconds, taken from the timestamps that Prefect recorded."""
    folder.mkdir()
    (folder / "sleepers_script.py").write_text(SCRIPT)
    model(folder / "model.onnx")
    parameters = {"dag": dag(folder, trials, seconds), "model": str(folder / "model.onnx"), "workers": workers}
    with serve(folder, places) as client:
        deployment = client.get("/deployments/name/optimize_model/optimize-model").raise_for_status().json()["id"]
        response = client.post(f"/deployments/{deployment}/create_flow_run", json={"parameters": parameters})
        run: Row = response.raise_for_status().json()
        created = _time(run["created"])
        while run["state_type"] not in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
            time.sleep(1)
            run = client.get(f"/flow_runs/{run['id']}").raise_for_status().json()
        assert run["state_type"] == "COMPLETED", run["state"]
        children = {"flow_runs": {"parent_flow_run_id": {"any_": [run["id"]]}}}
        chains: list[Row] = client.post("/flow_runs/filter", json=children).raise_for_status().json()
        trials_of = {c["id"]: _trials(client, c["id"]) for c in chains}
    ordered = [sorted(each) for each in trials_of.values() if each]
    assert sum(map(len, ordered)) == trials, ordered
    first, last = min(_time(c["created"]) for c in chains), max(end for each in ordered for _, end in each)
    served = [c for c in chains if trials_of[c["id"]]]
    later = sum(each[-1][1] - each[0][1] - (len(each) - 1) * seconds for each in ordered)
    return {
        "search": last - first,
        "model": (first - created) + (_time(run["end_time"]) - last),
        "process": _mean(_time(c["start_time"]) - _time(c["created"]) for c in served),
        "join": _mean(min(trials_of[c["id"]])[0] - _time(c["start_time"]) for c in served),
        "first": _mean(each[0][1] - each[0][0] - seconds for each in ordered),
        "trial": later / max(1, trials - len(ordered)),
        "flow runs": len(chains),
    }


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def _trials(client: httpx.Client, chain: str) -> list[tuple[float, float]]:
    body = {"task_runs": {"flow_run_id": {"any_": [chain]}}}
    rows: list[Row] = []
    for _ in range(60):  # the server processes the events of task runs with a delay
        rows = client.post("/task_runs/filter", json=body).raise_for_status().json()
        if rows and all(r["end_time"] for r in rows):
            break
        time.sleep(0.5)
    return [(_time(r["start_time"]), _time(r["end_time"])) for r in rows if r["name"].startswith("trial")]


def main() -> None:
    """Measure and print one line per number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--places", type=int)
    options = parser.parse_args()
    if options.trials % CHAINS:
        parser.error(f"--trials must be a multiple of {CHAINS}, the number of chains")
    places = f", {options.places} places" if options.places else ""
    print(f"deployed: {options.trials} trials of {options.seconds} s, 4 chains{places}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # root's PostgreSQL runs as another user
        for workers in options.workers:
            took = measure_run(Path(name) / str(workers), workers, options.trials, options.seconds, options.places)
            ideal = options.trials * options.seconds / workers
            print(
                f"{workers} workers: search {took['search']:.1f} s, efficiency {ideal / took['search']:.3f}; a chain: "
                f"{took['process']:.1f} s until its process runs, {took['join']:.1f} s until its first trial, "
                f"{took['first']:.1f} s more for the first ({took['flow runs']:.0f} flow runs); "
                f"{1000 * took['trial']:.0f} ms for each further trial; {took['model']:.1f} s a model",
                flush=True,
            )


if __name__ == "__main__":
    main()
