"""A Prefect server, a process work pool and its worker, for tests of what goes on behind a work pool."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ports import free_port
from prefect_server import ended, prepared, running_server

from autoopt.spec.targets import HostSpec

POOL = "elsewhere"


def environment(folder: Path) -> dict[str, str]:
    """Ours, with Prefect's files in `folder`, a measurement gate of the test's own, and no store at hand."""
    (folder / "tmp").mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "AUTOOPT_"))}
    own = {
        "PREFECT_HOME": str(folder / "prefect"),
        "AUTOOPT_HOME": str(folder / "worker"),
        "AUTOOPT_GATE": str(folder / "tmp"),
        "TMPDIR": str(folder / "tmp"),
        "AUTOOPT_SCRIPTS": str(folder),
    }
    return {**kept, **own, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}


@contextmanager
def bare_server(folder: Path, port: int) -> Iterator[dict[str, str]]:
    """A server with what it keeps in `folder`; gives the environment in which it is known."""
    env = {**environment(folder), "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    prepared(Path(env["PREFECT_HOME"]))
    with running_server(env, port, folder / "server.log"):
        yield env


@contextmanager
def server(folder: Path, port: int) -> Iterator[dict[str, str]]:
    """A server with the pool; gives the environment in which it is known."""
    with bare_server(folder, port) as env:
        create = ["work-pool", "create", POOL, "--type", "process"]
        subprocess.run([sys.executable, "-m", "prefect", *create], env=env, check=True, capture_output=True)
        yield env


@contextmanager
def worker(folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    """A worker of the pool; its flow runs end with it."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]
    often = {**env, "PREFECT_WORKER_QUERY_SECONDS": "1"}
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, env=often, stdout=log, stderr=log, start_new_session=True)
        with ended(process):
            yield


@contextmanager
def known(env: Mapping[str, str]) -> Iterator[None]:
    """This process knows the server."""
    before = {name: os.environ.get(name) for name in ("PREFECT_API_URL", "PREFECT_HOME")}
    os.environ.update({name: env[name] for name in before})
    from prefect.settings import PREFECT_API_URL, temporary_settings

    try:
        with temporary_settings({PREFECT_API_URL: env["PREFECT_API_URL"]}):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def pool_of_processes(folder: Path) -> Iterator[object]:
    """A host behind the pool of a server and worker of their own."""
    from autoopt.orchestrate.hosts.work_pool import PrefectHost

    with server(folder, free_port()) as env, worker(folder, env), known(env):
        host = PrefectHost(HostSpec(type="work_pool", work_pool=POOL), folder)
        try:
            yield host
        finally:
            host.close()
