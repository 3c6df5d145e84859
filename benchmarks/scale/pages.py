"""Response times of a Prefect server on PostgreSQL that holds a nightly sweep over a large zoo.

    python -m benchmarks.scale.pages [--models 1000] [--chains 20] [--trials 2] [--postgres URL] [--wait]

Creates its own databases on the PostgreSQL server at URL and drops them at the end. The pages need chromium and
chromedriver. For each page it prints the time from navigation to the largest content (Largest Contentful Paint, W3C)
and to the last API response while the page opens, each beside that of the same page over 10 models.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx

from autoopt.orchestrate.server.connection import SERVER

T = TypeVar("T")
REPEATS = 3
IDLE = 1.0
"""Seconds without a pending request after which a page counts as open."""

REQUESTS_JS = """return [performance.now(), performance.getEntriesByType('resource')
    .filter(e => e.name.includes('/api/')).map(e => [e.name, e.startTime, e.responseEnd])]"""
LARGEST_PAINT_JS = """return Promise.race([new Promise(done => setTimeout(() => done(0), 500)), new Promise(done =>
    new PerformanceObserver(list => done(list.getEntries().at(-1).startTime))
        .observe({type: 'largest-contentful-paint', buffered: true}))])"""
SMALL = 10
"""Models of the sweep to compare with: what is slow there too is not slow because of its size."""


class Opened(NamedTuple):
    """Load times of a page, in seconds."""

    last: float
    """Time to the last API response."""
    painted: float
    """Time to the largest content."""
    slow: float
    """Duration of the slowest request."""
    where: str
    """Path of the slowest request."""


@contextmanager
def database(server: str) -> Iterator[str]:
    """Create an empty database, yield its URL for Prefect, drop it."""
    import psycopg

    name = f"prefect_scale_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        connection.execute(f"ALTER DATABASE {name} SET jit = off".encode())  # as in docker-compose.yml
        try:
            yield server.replace("postgresql://", "postgresql+asyncpg://").rpartition("/")[0] + f"/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def prefect_server(folder: Path, **env: str) -> Iterator[str]:
    """Start a Prefect server on a free port with `env`, which also applies to this process; yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    os.environ.update(env)
    os.environ |= {"PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    os.environ |= {"PREFECT_SERVER_UI_API_URL": f"{url}/api", "PREFECT_LOGGING_LEVEL": "ERROR"}
    os.environ |= SERVER
    os.environ["PREFECT_SERVER_EVENTS_RETENTION_PERIOD"] = "P7D"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 180
        while True:
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/api/health").is_success:
                    break
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the server does not start: " + (folder / "server.log").read_text()[-2000:])
            time.sleep(0.2)
        os.environ["PREFECT_API_URL"] = f"{url}/api"
        yield url
    finally:
        process.terminate()
        process.wait(30)


def deploy(url: str) -> dict[str, tuple[uuid.UUID, uuid.UUID]]:
    """Create the deployments of autoopt; return the ids of flow and deployment by flow name."""
    from autoopt.deployments import deploy_all

    ids = {}
    for name in deploy_all():
        row = httpx.get(f"{url}/api/deployments/name/{name}").raise_for_status().json()
        ids[name.partition("/")[0]] = (uuid.UUID(row["flow_id"]), uuid.UUID(row["id"]))
    return ids


def creations(url: str, deployment: uuid.UUID, count: int = 200) -> float:
    """Return the mean seconds that creating a chain's flow run through the API takes."""
    began = time.monotonic()
    with httpx.Client(base_url=f"{url}/api", timeout=30) as client:
        for n in range(count):
            body: dict[str, Any] = {"name": f"new {n}", "parameters": {"run": "x", "chain": f"{n}"}, "tags": ["new"]}
            body["state"] = {"type": "COMPLETED"}
            client.post(f"/deployments/{deployment}/create_flow_run", json=body).raise_for_status()
    return (time.monotonic() - began) / count


def api_requests(url: str, ids: dict[str, str]) -> dict[str, float]:
    """Return the median seconds of each API request."""
    tag = {"tags": {"all_": [ids["tag"]]}}
    runs = {"sort": "START_TIME_DESC", "limit": 200}
    night = {"start_time": {"after_": "2000-01-01T00:00:00Z"}}
    requests: dict[str, tuple[str, Any]] = {
        "newest 200 flow runs": ("flow_runs/filter", runs),
        "flow runs, page 50 of 200": ("flow_runs/filter", {**runs, "offset": 10_000}),
        "flow runs of one run in the store (tag)": ("flow_runs/filter", {**runs, "flow_runs": tag}),
        "flow runs with a name like": ("flow_runs/filter", {**runs, "flow_runs": {"name": {"like_": "model-77"}}}),
        "failed flow runs": ("flow_runs/filter", {**runs, "flow_runs": {"state": {"type": {"any_": ["FAILED"]}}}}),
        "count of flow runs": ("flow_runs/count", {"flow_runs": night}),
        "children of the sweep": (
            "flow_runs/filter",
            {**runs, "flow_runs": {"parent_flow_run_id": {"any_": [ids["sweep"]]}}},
        ),
        "children of a model": (
            "flow_runs/filter",
            {**runs, "flow_runs": {"parent_flow_run_id": {"any_": [ids["model"]]}}},
        ),
        "task runs of a chain": ("task_runs/filter", {"task_runs": {"flow_run_id": {"any_": [ids["chain"]]}}}),
        "artifacts of a chain": ("artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [ids["chain"]]}}}),
        "latest artifacts": ("artifacts/latest/filter", {}),
        "deployments": ("deployments/paginate", {"limit": 50}),
    }
    took = {}
    with httpx.Client(base_url=f"{url}/api", timeout=120) as client:
        for text, (path, body) in requests.items():
            times = []
            for _ in range(REPEATS):
                began = time.monotonic()
                client.post(path, json=body).raise_for_status()
                times.append(time.monotonic() - began)
            took[text] = statistics.median(times)
    return took


def pages(url: str, ids: dict[str, str]) -> dict[str, Opened]:
    """Open each page several times; return the fastest load of each."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(option)
    window = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    shown = {
        "dashboard": "dashboard",
        "runs": "runs",
        "runs, second page of the table": "runs?page=2",
        "runs by tag": f"runs?tags={quote(ids['tag'])}",
        "one flow run: a chain": f"runs/flow-run/{ids['chain']}",
        "one flow run: a model": f"runs/flow-run/{ids['model']}",
        "one flow run: the sweep": f"runs/flow-run/{ids['sweep']}",
        "flows": "flows",
        "deployments": "deployments",
        "one deployment: tune_chain": f"deployments/deployment/{ids['deployment']}",
        "artifacts": "artifacts",
        "one artifact's history: trials": "artifacts/key/trials",
        "work pools": "work-pools",
        "events": "events",
    }
    try:
        for path in ("dashboard", *shown.values()):
            _open(window, f"{url}/{path}")  # load the JavaScript bundle and warm the caches
        return {name: min(_open(window, f"{url}/{path}") for _ in range(REPEATS)) for name, path in shown.items()}
    finally:
        window.quit()


def _open(window: Any, address: str) -> Opened:
    """Open a page; return the times that the browser recorded (Resource Timing, W3C)."""
    window.get("about:blank")
    window.get(address)
    while True:
        time.sleep(IDLE / 2)
        now, entries = window.execute_script(REQUESTS_JS)
        if entries and all(end for _, _, end in entries) and now - max(end for _, _, end in entries) > 1000 * IDLE:
            break
    last = max(end for _, _, end in entries) / 1000
    name, began, end = max(entries, key=lambda e: float(e[2] - e[1]))
    painted = window.execute_script(LARGEST_PAINT_JS) / 1000
    return Opened(last, painted, (end - began) / 1000, name.partition("/api/")[2])


def plans(models: int, chains: int) -> float:
    """Return the seconds to compile a DAG of `chains` chains `models` times."""
    from autoopt.dag import compile_plan, pass_infos
    from autoopt.spec import load_dag

    stages = {"name": "zoo", "passes": {f"p{c}": {"pass": "simplify"} for c in range(chains)}}
    spec = load_dag({**stages, "chains": [[f"p{c}"] for c in range(chains)]})
    infos = pass_infos(spec.all_targets[0].accelerator())
    began = time.monotonic()
    for _ in range(models):
        assert compile_plan(spec, infos).chain_count == chains
    return time.monotonic() - began


def night(options: argparse.Namespace, models: int) -> tuple[dict[str, float], dict[str, Opened]]:
    """Time API requests and pages over a sweep of `models` models, in a database and server of its own."""
    with (
        tempfile.TemporaryDirectory() as name,
        database(options.postgres) as address,
        prefect_server(Path(name), PREFECT_API_DATABASE_CONNECTION_URL=address) as url,
    ):
        deployed = deploy(url)
        deployment = deployed["tune_chain"][1]
        print(f"creating a chain's flow run through the API: {1000 * creations(url, deployment):.0f} ms")
        from benchmarks.scale.prefect_fill import Night

        began = time.monotonic()
        generated = Night(deployed)
        generated.fill(models, options.chains, options.trials)
        rows = asyncio.run(generated.write())
        runs = {k: len(generated.rows[k]) for k in ("flow_run", "task_run", "artifact", "event")}
        print(f"{rows} rows ({runs}) in {time.monotonic() - began:.0f} s, {size(options.postgres, address):.0f} MB")
        sweep, model, chain = (str(row["id"]) for row in generated.rows["flow_run"][:3])
        ids = {"sweep": sweep, "model": model, "chain": chain, "deployment": str(deployment)}
        ids["tag"] = f"run:{models // 2:012d}"
        times = api_requests(url, ids), pages(url, ids)
        if options.wait and models == options.models:
            print(f"{url} until Ctrl-C", flush=True)
            signal.pause()
        return times


def in_new_process(work: Callable[..., T], *arguments: Any) -> T:
    """Call `work` in a new process, because Prefect reads the addresses of server and database only once."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        return processes.submit(work, *arguments).result()


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("models", 1000), ("chains", 20), ("trials", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--wait", action="store_true", help="keep the server of the large sweep running until Ctrl-C")
    options = parser.parse_args()
    seconds = plans(options.models, options.chains)
    print(f"{options.models} plans of {options.chains} chains: {seconds:.1f} s", flush=True)
    few, large = (in_new_process(night, options, models) for models in (SMALL, options.models))
    print(f"API requests: seconds with {SMALL} and with {options.models} models")
    for text, seconds in large[0].items():
        print(f"{few[0][text]:8.3f} {seconds:8.3f}  {text}")
    print("pages: seconds to the largest content, and to the last response")
    for text, page in large[1].items():
        small = few[1][text]
        print(
            f"{small.painted:8.3f} {page.painted:8.3f} {small.last:10.3f} {page.last:8.3f}  page {text} "
            f"(slowest request {page.slow:.3f} s: {page.where})"
        )


def size(server: str, address: str) -> float:
    """Return the size of the database in megabytes."""
    import psycopg

    with psycopg.connect(server) as connection:
        name = address.rpartition("/")[2]
        row = connection.execute("SELECT pg_database_size(%s)", (name,)).fetchone()
    return float(row[0]) / 1e6 if row else 0.0


if __name__ == "__main__":
    main()
