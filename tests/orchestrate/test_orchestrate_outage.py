"""A night whose Prefect server, databases and object store all go away in the middle, and come back."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders import cnn, mlp, write
from children import HANG_SECONDS, start_process
from postgres import Server
from prefect_server import PLAIN, ended, free_port, running_server
from serving import environment, eventually

OUTAGE_SECONDS = float(os.environ.get("AUTOOPT_TEST_OUTAGE_SECONDS") or 15)
"""Ten minutes have been tried, with `--timeout=0`; see docs/operating.md."""
SCRIPT = """\
import sys
import time

from autoopt import register


@register("sleeper")
def sleeper(model, number: int = 0):
    \"\"\"Sleeps and changes the name of the graph.\"\"\"
    time.sleep(2)
    model.graph.name = f"sleeper {number}"
    return model
"""
DAG = """\
name: sleepers
user_script: script.py
passes: {s: {pass: sleeper, params: {number: {search: [0, 1, 2, 3, 4, 5]}}}}
chains: [[s]]
objectives: [{metric: size}]
constraints: []
search: {strategy: per-chain, sampler: exhaustive}
"""
ZOO = "name: outage\ndag: dag.yaml\nmodels: [one, two]\n"


@contextmanager
def object_store(port: int) -> Iterator[Any]:
    """An S3 server on a port; what it keeps outlives it, in this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.service
def test_a_night_outlasts_an_outage_of_everything_that_it_talks_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    write(cnn(), tmp_path / "one")
    write(mlp(), tmp_path / "two")
    for name, text in {"script.py": SCRIPT, "dag.yaml": DAG, "zoo.yaml": ZOO}.items():
        (tmp_path / name).write_text(text)
    database, s3_port, port = Server(), free_port(), free_port()
    database.sql("CREATE DATABASE prefect", "CREATE DATABASE autoopt")
    at = f"autoopt@127.0.0.1:{database.port}"
    keys = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}", "AWS_DEFAULT_REGION": "us-east-1"}
    keys |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    own = {"AUTOOPT_DB_URL": f"postgresql://{at}/autoopt", "AUTOOPT_ARTIFACTS_URL": "s3://artifacts/all"}
    env = environment(tmp_path, PREFECT_HOME=str(tmp_path / "prefect"), **own)
    with_database = {**env, "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{at}/prefect"}
    api = httpx.Client(base_url=f"http://127.0.0.1:{port}/api", timeout=HANG_SECONDS)
    with ExitStack() as stack:
        stack.callback(database.close)
        away = stack.enter_context(ExitStack())
        away.enter_context(object_store(s3_port))
        boto3.client("s3").create_bucket(Bucket="artifacts")
        away.enter_context(running_server(with_database, port, tmp_path / "server-1.log", PLAIN))
        log = stack.enter_context((tmp_path / "serve.log").open("wb"))
        serve = start_process(
            [sys.executable, "-m", "autoopt", "serve", "--zoo", "zoo.yaml"],
            env={**env, "PREFECT_API_URL": str(api.base_url).rstrip("/")},
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
        stack.enter_context(ended(serve))
        eventually(lambda: b"ready" in (tmp_path / "serve.log").read_bytes())
        night = api.get("/deployments/name/nightly_sweep/outage").raise_for_status().json()["id"]
        run = api.post(f"/deployments/{night}/create_flow_run", json={}).raise_for_status().json()["id"]
        eventually(lambda: trials_done(database) > 0)

        away.close()
        database.crash()
        time.sleep(OUTAGE_SECONDS)
        database.start()
        away.enter_context(object_store(s3_port))
        away.enter_context(running_server(with_database, port, tmp_path / "server-2.log", PLAIN))

        def if_completed() -> Any:
            """The night's state; a long outage without heartbeats has it called crashed for a while."""
            state = api.get(f"/flow_runs/{run}").raise_for_status().json()["state"]
            return state if state["type"] == "COMPLETED" else None

        state = eventually(if_completed, HANG_SECONDS + 2 * OUTAGE_SECONDS)
        assert state["message"] == "No regression in 2 models."
        assert trials_done(database) == 12
        assert rows(database, "SELECT count(*) FROM sweep") == 1

        def all_shown() -> bool:
            trials = {"name": {"like_": "trial "}, "state": {"type": {"any_": ["COMPLETED"]}}}
            return api.post("/task_runs/count", json={"task_runs": trials}).raise_for_status().json() == 12

        eventually(all_shown)
        end = {"filter": {"event": {"name": ["autoopt.sweep.finished"]}}}
        eventually(lambda: api.post("/events/filter", json=end).raise_for_status().json()["total"] == 1)


def trials_done(database: Server) -> int:
    """Trials in the store that have ended well."""
    return rows(database, "SELECT count(*) FROM trial WHERE outcome = 'ok'")


def rows(database: Server, query: str) -> int:
    import psycopg

    try:
        with psycopg.connect(database.url.replace("/postgres", "/autoopt")) as connection:
            row = connection.execute(query.encode()).fetchone()
    except psycopg.errors.UndefinedTable:
        return 0
    assert row is not None
    return int(row[0])
