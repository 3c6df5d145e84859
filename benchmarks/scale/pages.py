"""A large zoo in a Prefect server on PostgreSQL: how long its API and its pages take over 20,000 flow runs of chains.

    python -m benchmarks.scale.pages [--models 1000] [--chains 20] [--trials 2] [--postgres URL] [--wait]

Makes databases of its own on the PostgreSQL server at URL and drops them at the end. Needs chromium with chromedriver
for the pages. A page's times run from its address to its largest content (Largest Contentful Paint, W3C), and to the
last answer of the API that it asks for while it opens; each stands beside that of the same page over 10 models.
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
"""Seconds without a request under way after which a page counts as open."""

ASKED = """return [performance.now(), performance.getEntriesByType('resource')
    .filter(e => e.name.includes('/api/')).map(e => [e.name, e.startTime, e.responseEnd])]"""
PAINTED = """return Promise.race([new Promise(found => setTimeout(() => found(0), 500)), new Promise(found =>
    new PerformanceObserver(list => found(list.getEntries().at(-1).startTime))
        .observe({type: 'largest-contentful-paint', buffered: true}))])"""
SMALL = 10
"""Models of the night that the large one is compared with: what is slow there is not slow for its size."""


class Opened(NamedTuple):
    """What a page took, in seconds."""

    last: float
    """Until its last answer."""
    painted: float
    """Until its largest content."""
    slow: float
    """Its slowest request."""
    where: str
    """Which that was."""


@contextmanager
def database(server: str) -> Iterator[str]:
    """An empty database; its address for Prefect."""
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
    """A Prefect server on a free port, `env` for it and for this process; the address of its pages."""
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
    """The deployments of autoopt; ids of flow and deployment by flow name."""
    from autoopt.orchestrate.deployments import deploy_all

    found = {}
    for name in deploy_all():
        row = httpx.get(f"{url}/api/deployments/name/{name}").raise_for_status().json()
        found[name.partition("/")[0]] = (uuid.UUID(row["flow_id"]), uuid.UUID(row["id"]))
    return found


def creations(url: str, deployment: uuid.UUID, count: int = 200) -> float:
    """Seconds for one flow run of a chain to be made through the API, as a model's run makes them."""
    began = time.monotonic()
    with httpx.Client(base_url=f"{url}/api", timeout=30) as client:
        for n in range(count):
            asked = {"name": f"made {n}", "parameters": {"run": "x", "chain": f"{n}"}, "tags": ["made"]}
            asked["state"] = {"type": "COMPLETED"}
            client.post(f"/deployments/{deployment}/create_flow_run", json=asked).raise_for_status()
    return (time.monotonic() - began) / count


def questions(url: str, ids: dict[str, str]) -> dict[str, float]:
    """Seconds of each question to the API, the median of a few."""
    tag = {"tags": {"all_": [ids["tag"]]}}
    runs = {"sort": "START_TIME_DESC", "limit": 200}
    night = {"start_time": {"after_": "2000-01-01T00:00:00Z"}}
    asked: dict[str, tuple[str, Any]] = {
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
        for text, (path, body) in asked.items():
            times = []
            for _ in range(REPEATS):
                began = time.monotonic()
                client.post(path, json=body).raise_for_status()
                times.append(time.monotonic() - began)
            took[text] = statistics.median(times)
    return took


def pages(url: str, ids: dict[str, str]) -> dict[str, Opened]:
    """How long each page takes."""
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
            _open(window, f"{url}/{path}")  # the program itself, and warm caches as in the second look
        return {name: min(_open(window, f"{url}/{path}") for _ in range(REPEATS)) for name, path in shown.items()}
    finally:
        window.quit()


def _open(window: Any, address: str) -> Opened:
    """As the browser itself has recorded it (Resource Timing, W3C)."""
    window.get("about:blank")
    window.get(address)
    while True:
        time.sleep(IDLE / 2)
        now, entries = window.execute_script(ASKED)
        if entries and all(end for _, _, end in entries) and now - max(end for _, _, end in entries) > 1000 * IDLE:
            break
    last = max(end for _, _, end in entries) / 1000
    name, began, end = max(entries, key=lambda e: float(e[2] - e[1]))
    painted = window.execute_script(PAINTED) / 1000
    return Opened(last, painted, (end - began) / 1000, name.partition("/api/")[2])


def plans(models: int, chains: int) -> float:
    """Seconds to plan a DAG of so many chains so many times."""
    from autoopt.dag import compile_plan, pass_infos
    from autoopt.spec import load_dag

    stages = {"name": "zoo", "passes": {f"p{c}": {"pass": "simplify"} for c in range(chains)}}
    spec = load_dag({**stages, "chains": [[f"p{c}"] for c in range(chains)]})
    infos = pass_infos(spec.all_targets[0].accelerator())
    began = time.monotonic()
    for _ in range(models):
        assert compile_plan(spec, infos).chain_count == chains
    return time.monotonic() - began


def night(asked: argparse.Namespace, models: int) -> tuple[dict[str, float], dict[str, Opened]]:
    """What questions and pages take over a night of so many models, in a database and a server of its own."""
    with tempfile.TemporaryDirectory() as name, database(asked.postgres) as address:
        given = {"PREFECT_API_DATABASE_CONNECTION_URL": address}
        with prefect_server(Path(name), **given) as url:
            known = deploy(url)
            print(f"a chain's flow run made through the API: {1000 * creations(url, known['tune_chain'][1]):.0f} ms")
            from benchmarks.scale.prefect_fill import Night

            began = time.monotonic()
            made = Night(known)
            made.fill(models, asked.chains, asked.trials)
            rows = asyncio.run(made.write())
            runs = {k: len(made.rows[k]) for k in ("flow_run", "task_run", "artifact", "event")}
            print(f"{rows} rows ({runs}) in {time.monotonic() - began:.0f} s, {size(asked.postgres, address):.0f} MB")
            found = made.rows["flow_run"]
            ids = {"sweep": found[0], "model": found[1], "chain": found[2]}
            named = {k: str(row["id"]) for k, row in ids.items()} | {"deployment": str(known["tune_chain"][1])}
            named["tag"] = f"run:{models // 2:012d}"
            taken = questions(url, named), pages(url, named)
            if asked.wait and models == asked.models:
                print(f"{url} until Ctrl-C", flush=True)
                signal.pause()
            return taken


def elsewhere(work: Callable[..., T], *arguments: Any) -> T:
    """In a process of its own: Prefect reads once which server and database it has."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        return processes.submit(work, *arguments).result()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("models", 1000), ("chains", 20), ("trials", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--wait", action="store_true", help="leave the large night's server up until Ctrl-C")
    asked = parser.parse_args()
    seconds = plans(asked.models, asked.chains)
    print(f"{asked.models} plans of {asked.chains} chains: {seconds:.1f} s", flush=True)
    few, large = (elsewhere(night, asked, models) for models in (SMALL, asked.models))
    print(f"seconds over {SMALL} and over {asked.models} models")
    for text, seconds in large[0].items():
        print(f"{few[0][text]:8.3f} {seconds:8.3f}  {text}")
    print("until its largest content, and until its last answer")
    for text, page in large[1].items():
        small = few[1][text]
        print(
            f"{small.painted:8.3f} {page.painted:8.3f} {small.last:10.3f} {page.last:8.3f}  page {text} "
            f"(slowest request {page.slow:.3f} s: {page.where})"
        )


def size(server: str, address: str) -> float:
    """Megabytes of the database."""
    import psycopg

    with psycopg.connect(server) as connection:
        name = address.rpartition("/")[2]
        row = connection.execute("SELECT pg_database_size(%s)", (name,)).fetchone()
    return float(row[0]) / 1e6 if row else 0.0


if __name__ == "__main__":
    main()
