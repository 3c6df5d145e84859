"""A Prefect server that tests stop and start again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prefect_server import prepared, running_server


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
