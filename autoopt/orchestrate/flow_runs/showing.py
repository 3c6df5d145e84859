"""The process in the background that shows runs in Prefect, and how runs ask for it.

    python -m autoopt.orchestrate.flow_runs.showing

There is one for each home and server at most. It starts the user's own Prefect server if no other is named, shows what
the store has of the runs, and ends with the last of them. A run that dies is shown as crashed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

from autoopt.engine.run.session import Session, search_inline
from autoopt.errors import AutooptError, SystemFailure, one_line
from autoopt.json_codec import from_json, to_json
from autoopt.orchestrate.flow_runs.naming import headlines, session_run_name, tags_of
from autoopt.orchestrate.flow_runs.shown_run import Showing, ShownRun
from autoopt.orchestrate.server.access import PASSWORD_FILE
from autoopt.orchestrate.server.connection import use_made_password, without_userinfo
from autoopt.orchestrate.server.outages import OUTAGE_SECONDS
from autoopt.orchestrate.server.personal import connect, prefect_home, running_server
from autoopt.orchestrate.server.rest import PrefectApi
from autoopt.results import RunResult
from autoopt.store import EventRecord, Store, open_store

BEGUN, ENDED = "flow run", "flow run closed"
"""Kinds of the events that ask to show a run, and that say that it is shown to its end."""
POLL_SECONDS = 0.5
NICENESS = 10
"""The process works while models are measured."""
PING_SECONDS = 60.0
"""Longest time between two requests during runs: an idle server ends."""


def search_shown(session: Session, parent: str = "") -> RunResult:
    """Search in this process, while another one shows the run in Prefect; `parent` is the flow run of a sweep.

    Raises:
        SystemFailure: the server in PREFECT_API_URL does not answer.
        InputError: it requires another password.
    """
    ctx = session.ctx
    url = os.environ.get("PREFECT_API_URL")
    if url:
        use_made_password(ctx.store.home)
        PrefectApi(url).check()
    trials = ctx.store.trials.all(ctx.run)
    showing = Showing(
        owner=ctx.store.owner,
        server=_server_key(),
        name=session_run_name(session),
        tags=tuple(tags_of(session)),
        metrics=tuple(headlines(session)),
        trials=session.search_config.trials or ctx.problem.plan.point_count,
        parent=parent,
        earlier=tuple(trial.number for trial in trials if trial.status == "done"),
    )
    event = EventRecord(kind=BEGUN, run=ctx.run, subject=uuid.uuid4().hex, data=to_json(showing))
    ctx.store.events.add(event)
    ensure_shown(ctx.store)
    result = search_inline(session)
    if not url:
        ctx.attempt.observer.on_note(_where_shown())
    return result


def ensure_shown(store: Store) -> None:
    """Start the process that shows runs of this store, if there are any and it does not run."""
    key = _server_key()
    if not _open_events(store, key):
        return
    with _lock(store.home, key) as free:
        if not free:
            return
    logs = store.home / "logs"
    logs.mkdir(exist_ok=True)
    with (logs / "flow_runs.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, "AUTOOPT_HOME": str(store.home)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _where_shown() -> str:
    """The place of the pages of the user's own server."""
    server = running_server()
    if server is None:
        return "Prefect is starting; the run will show in its pages"
    return f"Prefect shows the run at {server.pages} (password: {prefect_home() / PASSWORD_FILE})"


def _server_key() -> str:
    """Identifies the server that this environment names; empty for the user's own server."""
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return ""
    return hashlib.sha256(without_userinfo(url).encode()).hexdigest()[:8]


def _open_events(store: Store, key: str) -> list[EventRecord]:
    """The requests to show a run on a server that have not come to an end."""
    ended = {event.subject for event in store.events.all(kind=ENDED)}
    begun = [event for event in store.events.all(kind=BEGUN) if event.data.get("server") == key]
    return [event for event in begun if event.subject not in ended]


@contextmanager
def _lock(home: Path, key: str) -> Iterator[bool]:
    """Hold the lock of the process for this home and server; yields False if another process holds it."""
    with (home / f"flow_runs{key}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def show(store: Store, key: str) -> None:
    """Show the runs of a store on a server until all have ended.

    Raises:
        AutooptError: the server does not start, or stays away.
    """
    api = PrefectApi(connect(store.home))
    runs: dict[str, ShownRun] = {}
    answered = time.monotonic()
    while events := _open_events(store, key):
        try:
            for event in events:
                run, subject = str(event.run), event.subject
                if subject not in runs:
                    runs[subject] = ShownRun(store, run, subject, from_json(Showing, event.data))
                if runs[subject].update(api):
                    store.events.add(EventRecord(kind=ENDED, run=run, subject=subject))
            if time.monotonic() - answered > PING_SECONDS:
                api.get("/health")
            answered = time.monotonic()
        except OSError as error:
            reason = one_line(str(error))
            if isinstance(error, HTTPError) and error.code < 500:
                _log(f"the Prefect server refuses what run {run} shows ({reason})")
                store.events.add(EventRecord(kind=ENDED, run=run, subject=subject))
            elif time.monotonic() - answered > OUTAGE_SECONDS:
                raise SystemFailure(f"the Prefect server does not answer ({reason})", where=api.url) from None
            elif not key:
                os.environ.pop("PREFECT_API_URL", None)
                api = PrefectApi(connect(store.home))  # it may have ended
        time.sleep(POLL_SECONDS)


def _log(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    sys.stderr.flush()


def main() -> int:
    """Show the runs of AUTOOPT_HOME on the server that the environment names."""
    os.nice(NICENESS)
    key = _server_key()
    try:
        with open_store() as store:
            # A run that asks while this process is about to end sees its lock, and starts no other one.
            while _open_events(store, key):
                with _lock(store.home, key) as free:
                    if not free:
                        return 0
                    show(store, key)
    except AutooptError as error:
        _log(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
