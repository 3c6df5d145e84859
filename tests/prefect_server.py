"""Prefect servers for tests, with databases that are ready: making the tables takes ten seconds of CPU time."""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

from children import HANG_SECONDS
from ports import free_port

KEPT = Path(__file__).parents[1] / ".pytest_cache"
DATABASE, MEMO = "prefect.db", "memo_store.toml"


def prepared(home: Path) -> Path:
    """Put the database of a new server into a home without one; returns the home."""
    home.mkdir(parents=True, exist_ok=True)
    if not (home / DATABASE).exists():
        for name in (MEMO, DATABASE):
            shutil.copy(_template() / name, home / name)
    return home


@contextmanager
def running_server(env: Mapping[str, str], port: int, log: Path) -> Iterator[str]:
    """A server that keeps its data in env's PREFECT_HOME; gives the address of its API."""
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    quiet = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false"}
    given = {**env, **quiet}
    with log.open("wb") as out, ended(subprocess.Popen([*command, "--no-ui"], env=given, stdout=out, stderr=out)) as it:
        url = f"http://127.0.0.1:{port}/api"
        _wait_for(url, it, log)
        yield url


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End a process, at the latest after 20 seconds by force."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + HANG_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text()[-2000:])


def _template() -> Path:
    """The home of a server of this version that has started once; all test processes share it."""
    template = KEPT / f"prefect-{importlib.metadata.version('prefect')}"
    KEPT.mkdir(exist_ok=True)
    with (KEPT / "prefect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            with tempfile.TemporaryDirectory(dir=KEPT) as folder:
                made = Path(folder) / "home"
                made.mkdir()
                kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
                with running_server({**kept, "PREFECT_HOME": str(made)}, free_port(), Path(folder) / "log"):
                    pass
                with closing(sqlite3.connect(made / DATABASE)) as database:
                    database.execute("PRAGMA journal_mode = DELETE")  # the database is one file then
                made.rename(template)
    return template
