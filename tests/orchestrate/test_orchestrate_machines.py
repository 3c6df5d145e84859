"""Several machines: work queues by label, one PostgreSQL, one S3, a home for each."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from builders import cnn, mlp, write
from children import HANG_SECONDS
from machines import Machine, machines, reachable
from ports import free_port
from postgres import Server
from prefect_server import PLAIN, running_server
from serving import Serving, alive, belonging, environment, eventually

from autoopt.cli.app import main
from autoopt.store import open_store

SCRIPT = '''\
import socket
import time
from pathlib import Path

from autoopt import register

HERE = Path(__file__).parent


@register("where")
def where(model, wait_for: int = 0):
    """Notes the machine; continues when `wait_for` machines have been here."""
    (HERE / "seen").mkdir(exist_ok=True)
    (HERE / "seen" / socket.gethostname()).touch()
    until = time.monotonic() + 300
    while len(list((HERE / "seen").iterdir())) < wait_for and time.monotonic() < until:
        time.sleep(0.2)
    model.graph.node[0].doc_string = f"made on {socket.gethostname()}"
    return model
'''
DAG = """\
name: spread
user_script: script.py
passes:
  tidy: {pass: name_fix}
  one: {pass: where, params: {wait_for: COUNT}}
  other: {pass: where, params: {wait_for: COUNT}}
chains: [[tidy, one], [other]]
constraints: []
measurement: {seconds: 0.2, replicas: 2, target_width: 1.0, rounds: 2}
"""


@contextmanager
def serve_on(machine: Machine, folder: Path, *options: str, **env: str) -> Iterator[None]:
    """`autoopt serve` on a machine, with a home of its own; ended by an interrupt."""
    home = folder / machine.name
    home.mkdir()
    given = environment(home, **{"AUTOOPT_SCRIPTS": str(folder), **env})
    command = machine.command(sys.executable, "-m", "autoopt", "serve", *options)
    process = subprocess.Popen(
        command, cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    said: list[str] = []
    try:
        while not any(line.startswith("ready") for line in said):
            said.append(lines.get(timeout=HANG_SECONDS))
            assert said[-1], f"serve ended: {said}"
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):  # then it is among those left
            process.wait(HANG_SECONDS)
        left = list(filter(alive, belonging(home)))
        for one in left:
            one.kill()
        assert not left, f"left behind: {left}"


@contextmanager
def server_on(database: str, folder: Path, port: int) -> Iterator[Serving]:
    """A Prefect server that keeps its data in a database elsewhere."""
    home = folder / "server"
    home.mkdir()
    kept = {"PREFECT_HOME": str(home), "PREFECT_API_DATABASE_CONNECTION_URL": database}
    with running_server(environment(home, **kept), port, home / "server.log", PLAIN):
        yield Serving(folder, f"http://127.0.0.1:{port}", None, [])  # type: ignore[arg-type]


@pytest.fixture
def bucket() -> Iterator[int]:
    """The port of an S3 server of the test's own with a bucket `artifacts`."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = int(server.get_host_and_port()[1])
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys).create_bucket(Bucket="artifacts")
    yield port
    server.stop()


@pytest.fixture
def database() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.mark.service
def test_chains_run_where_their_label_is(tmp_path: Path, bucket: int, database: Server) -> None:
    write(cnn(), tmp_path / "cnn")
    write(mlp(), tmp_path / "mlp")
    dags = tmp_path / "dags"  # not where the machines' workers are
    dags.mkdir()
    (dags / "script.py").write_text(SCRIPT)
    (dags / "here.yaml").write_text(DAG.replace("COUNT", "1"))
    (dags / "both.yaml").write_text(DAG.replace("COUNT", "2"))
    with ExitStack() as stack:
        port = free_port()
        database.sql("CREATE DATABASE prefect")
        kept = f"postgresql+asyncpg://autoopt@127.0.0.1:{database.port}/prefect"
        server = stack.enter_context(server_on(kept, tmp_path, port))
        one, two = stack.enter_context(machines("one", "two"))
        for machine, options in ((one, ["--queue", "cpu"]), (two, ["--queue", "cpu", "--queue", "cuda"])):
            for reached in (port, bucket, database.port):
                stack.enter_context(reachable(machine, reached))
            env = {
                "PREFECT_API_URL": f"http://{machine.gateway}:{port}/api",
                "AUTOOPT_DB_URL": database.url.replace("127.0.0.1", machine.gateway),
                "AUTOOPT_ARTIFACTS_URL": "s3://artifacts/autoopt",
                "AWS_ENDPOINT_URL": f"http://{machine.gateway}:{bucket}",
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
            stack.enter_context(serve_on(machine, tmp_path, "--limit", "1", *options, **env))

        asked = {"dag": str(dags / "here.yaml"), "model": str(tmp_path / "cnn/model.onnx")}
        run = server.start("optimize_model/cuda", **asked)
        eventually(lambda: (dags / "seen" / "two").exists())
        (dags / "here.yaml").write_text("changed while one chain goes on and before the other begins")
        server.completed(run)
        assert [c["work_queue_name"] for c in server.children_of(run)] == ["cuda", "cuda"]
        assert {p.name for p in (dags / "seen").iterdir()} == {"two"}  # machine one had nothing else to do

        (dags / "seen" / "two").unlink()
        asked = {"dag": str(dags / "both.yaml"), "model": str(tmp_path / "mlp/model.onnx")}
        run = server.start("optimize_model/cpu", **asked)
        server.completed(run)
        assert {p.name for p in (dags / "seen").iterdir()} == {"one", "two"}
        assert {c["work_queue_name"] for c in server.children_of(run)} == {"cpu"}
    with open_store(database.url, tmp_path / "reader") as store:
        rows = store.trials.all(store.runs.get("latest").id)
    assert [row.outcome for row in rows] == ["ok", "ok"]


def test_a_queue_has_a_name_that_can_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--queue", "a b"]) == 2
    said = capsys.readouterr().err
    assert "work queue" in said
    assert len(said.splitlines()) == 1
