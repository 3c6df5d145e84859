"""A whole `autoopt serve` for tests, and what is asked of its server."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from children import HANG_SECONDS
from ports import free_port
from prefect_server import prepared

Json = dict[str, Any]
Late = tuple[type[httpx.TimeoutException], ...]
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
ASK_AGAIN_SECONDS = 30.0
"""Limit of a request that is repeated."""
_client = httpx.Client(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
"""Servers restart, so that each request has its own connection; what certificates need would take 20 ms each time."""
OWNER = "FOLDER_OF_THE_TEST"
"""Variable that all processes of one `autoopt serve` inherit, workers too."""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Ours, without what would lead to another server or store; with a measurement gate of the test's own."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "AUTOOPT_"))}
    gate = folder / "tmp"
    gate.mkdir(exist_ok=True)
    own = {"AUTOOPT_HOME": str(folder / "home"), "TMPDIR": str(gate), "AUTOOPT_GATE": str(gate), OWNER: str(folder)}
    return {**inherited, **own, "AUTOOPT_SCRIPTS": str(folder), **more}


@dataclass
class Api:
    """A Prefect server."""

    url: str
    """Without `/api`."""
    password: str = ""
    """user:password"""
    before: frozenset[str] = frozenset()
    """Ids of what other tests left on it."""

    @property
    def _auth(self) -> tuple[str, str] | None:
        user, colon, password = self.password.partition(":")
        return (user, password) if colon else None

    def get(self, path: str) -> Json:
        answer: Json = self._asked("GET", path).json()
        return answer

    def find(self, what: str, **query: Any) -> list[Json]:
        """Rows that are not of other tests."""
        found: list[Json] = self._asked("POST", f"{what}/filter", {"limit": 200, **query}).json()
        return [row for row in found if row.get("id") not in self.before]

    def ask(self, method: str, path: str, asked: Json | None = None) -> httpx.Response:
        """Have something changed."""
        return self._asked(method, path, asked, late=())

    def _asked(
        self, method: str, path: str, asked: Json | None = None, late: Late = (httpx.TimeoutException,)
    ) -> httpx.Response:
        """As Prefect's own clients do, which ask again where the server's database is busy, or its answer `late`."""
        limit = ASK_AGAIN_SECONDS if late else HANG_SECONDS

        def answer() -> httpx.Response | None:
            try:
                made = _client.request(method, f"{self.url}/api/{path}", json=asked, auth=self._auth, timeout=limit)
            except late:
                return None
            return None if made.status_code == 503 else made

        found: httpx.Response = eventually(answer, HANG_SECONDS)
        return found.raise_for_status()

    def deployment(self, flow: str) -> Json:
        """The deployment of a flow, once flow runs of it are executed."""

        def ready() -> Json | None:
            found = self.find("deployments", flows={"name": {"any_": [flow]}})
            return next((one for one in found if one["status"] == "READY"), None)

        row: Json = eventually(ready)
        return row

    def start(self, flow: str, **parameters: Any) -> str:
        known = self.deployment(flow)["id"]
        return str(self.ask("POST", f"deployments/{known}/create_flow_run", {"parameters": parameters}).json()["id"])

    def set_state(self, flow_run: str, **state: str) -> None:
        self.ask("POST", f"flow_runs/{flow_run}/set_state", {"state": state, "force": False})

    def children_of(self, flow_run: str) -> list[Json]:
        """The flow runs below a flow run, by start."""
        under = {"flow_runs": {"parent_flow_run_id": {"any_": [flow_run]}}, "sort": "START_TIME_ASC"}
        return self.find("flow_runs", **under)

    def ended(self, flow_run: str) -> Json:
        """The flow run once it has ended."""

        def row() -> Json | None:
            found = self.get(f"flow_runs/{flow_run}")
            return found if found["state_type"] in ENDED else None

        found: Json = eventually(row)
        return found

    def retry(self, flow_run: str) -> Json:
        """The flow run once a retry of it has ended."""
        before = self.get(f"flow_runs/{flow_run}")["run_count"]
        self.set_state(flow_run, type="SCHEDULED", name="AwaitingRetry")
        eventually(lambda: self.get(f"flow_runs/{flow_run}")["run_count"] > before)
        return self.ended(flow_run)

    def completed(self, flow_run: str) -> Json:
        """The flow run once it has ended, which must be as completed; a failure shows its message and its log."""
        row = self.ended(flow_run)
        if row["state_type"] != "COMPLETED":
            log = self.find("logs", logs={"flow_run_id": {"any_": [flow_run]}}, sort="TIMESTAMP_ASC")
            raise AssertionError("\n".join([row["state_type"], str(row["state"]), *(line["message"] for line in log)]))
        return row


@dataclass(kw_only=True)
class Serving(Api):
    """An `autoopt serve` in `folder`."""

    folder: Path
    process: subprocess.Popen[str]
    said: list[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def named(self, name: str) -> Json | None:
        """The latest flow run of that name."""
        return next((r for r in self.find("flow_runs", sort="START_TIME_DESC") if r["name"] == name), None)

    def autoopt(self, *arguments: str, **more: str) -> Json:
        """A command in the same folder, by its JSON document; `more` are environment variables."""
        command = [sys.executable, "-m", "autoopt", *arguments, "--json"]
        env = environment(self.folder, **more)
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)
        assert done.returncode in (0, 1), done.stderr
        document: Json = json.loads(done.stdout)
        return document


def eventually(what: Callable[[], Any], seconds: float = HANG_SECONDS) -> Any:
    """What `what` gives once it is something; the bound only ends a test that would hang."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        threading.Event().wait(0.3)
    raise AssertionError("it did not happen in time")


@contextmanager
def serving(folder: Path, *options: str, **env: str) -> Iterator[Serving]:
    """`autoopt serve` on a free port; ended by an interrupt, after which none of its processes may be left."""
    prepared(folder / "home" / "prefect")
    port = free_port()
    command = [sys.executable, "-m", "autoopt", "serve", "--port", str(port), *options]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(folder, **env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    said: list[str] = []
    try:
        while not any(line.startswith("ready") for line in said):
            said.append(lines.get(timeout=HANG_SECONDS))
            assert said[-1], f"serve ended: {said}"
        password = json.loads((folder / "home" / "prefect.json").read_text())["auth"]
        url = f"http://127.0.0.1:{port}"
        yield Serving(url=url, password=password, folder=folder, process=process, said=said)
    finally:
        family = []
        with suppress(psutil.NoSuchProcess):  # it has ended by itself
            family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):  # then it is among those left
            process.wait(HANG_SECONDS)
        left = [p for p in {*family, *belonging(folder)} if alive(p)]
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        assert not left, f"left behind: {left}"


def belonging(folder: Path, word: str = "") -> list[psutil.Process]:
    """Processes started with the folder's environment, whoever their parent is, with `word` in their command."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(OWNER) == str(folder) and word in " ".join(process.cmdline()):
                found.append(process)
    return found


def alive(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended and was not collected does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout
    for line in process.stdout:
        lines.put(line)
    lines.put("")
