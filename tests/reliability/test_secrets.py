"""A canary as password, everywhere a password may be: no command says it, and nothing that is kept holds it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import BinaryIO

import numpy as np
import pytest
from outside import DAG, Command, Place, filled
from ports import free_port
from postgres import Server
from prefect_server import prepared, running_server

CANARY = "c4n4ry-4nd-s3cr3t"
RUN = ("run", "dag.yaml", "--model", "model.onnx", "--json")
COMMANDS = (
    ("plan", "dag.yaml", "--model", "model.onnx"), ("init", "model.onnx"), ("runs",), ("runs", "latest"),
    ("runs", "latest", "--json"),
    ("lineage",), ("lineage", "--json"), ("report", "--out", "report.html"),
    ("replay", "out/recipe.json", "--model", "model.onnx"),
    ("store", "verify"), ("store", "gc"), ("store", "stats"), ("store", "stats", "--json"),
    ("store", "backup", "backup"), ("sweep", "zoo.yaml", "--engine", "inline", "--out", "swept"),
    (*RUN, "--again", "all"), ("runs", "--json"),
)  # fmt: skip

PREFECT_COMMANDS = (("resume", "--json"), ("doctor",), ("doctor", "--json"), ("resume",))
"""Commands that may import Prefect, which keeps to the server that a process began with."""


def holders(*folders: Path) -> list[str]:
    """Files below `folders` in which the canary is."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if CANARY.encode() in path.read_bytes()]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.sql(f"CREATE ROLE bird LOGIN PASSWORD '{CANARY}'", "CREATE DATABASE cage OWNER bird")
    yield made
    made.close()


@pytest.fixture
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The API of a Prefect server, and the folder of all that it keeps."""
    place = Place(tmp_path_factory.mktemp("server"))
    prepared(Path(place.environment["PREFECT_HOME"]))
    with running_server(place.environment, free_port(), place / "said.txt") as url:
        yield url, place.folder


@pytest.mark.service
def test_no_command_says_or_keeps_a_password(
    server: Server, prefect_server: tuple[str, Path], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, (api, kept_by_prefect) = filled(tmp_path), prefect_server
    (tmp_path / "zoo.yaml").write_text("name: z\ndag: dag.yaml\nmodels: [model.onnx]\n")
    env = {
        "AUTOOPT_DB_URL": f"postgresql://bird:{CANARY}@127.0.0.1:{server.port}/cage?options=-cwork_mem%3D4MB",
        "PREFECT_API_URL": api.replace("://", f"://bird:{CANARY}@"),
    }
    killed = place.call(*RUN, **env, AUTOOPT_FAULT="between ask and tell:2", codes=(-9,))
    texts = {"killed": killed.out + killed.err}
    for arguments in PREFECT_COMMANDS:
        ended = place.call(*arguments, **env, codes=(0, 1) if arguments[0] == "doctor" else (0,))
        texts[" ".join(arguments)] = ended.out + ended.err
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for arguments in COMMANDS:
        code, out, err = command(tmp_path, *arguments)
        assert code == 0, err
        texts[" ".join(arguments)] = out + err
    newest, *_, oldest = json.loads(texts["runs --json"])
    code, out, err = command(tmp_path, "compare", oldest["run"], newest["run"])
    assert code in (0, 1), err  # 1: the newer run is slower
    texts["compare"] = out + err
    assert [name for name, text in texts.items() if CANARY in text] == []
    assert [name for name, text in texts.items() if "internal error" in text] == []
    assert holders(tmp_path, kept_by_prefect) == []
    kept = server.dump("cage")
    assert "Int8" in kept["trial"]
    assert [table for table, rows in kept.items() if CANARY in rows] == []


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://bird:{CANARY}@127.0.0.1:9/cage", f"postgresql://127.0.0.1:9/cage?password={CANARY}",
        f"mysql://bird:{CANARY}@host/x", f"postgresql://bird:{CANARY}@[::1/cage", f"sqlite://bird:{CANARY}@/",
    ],
)  # fmt: skip
def test_no_error_says_a_password(url: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    for name in ("AUTOOPT_DB_URL", "PREFECT_API_URL"):
        monkeypatch.setenv(name, url)
    monkeypatch.setenv("AUTOOPT_PATIENCE", "1")  # no server listens there
    for arguments in ((*RUN, "--quiet"), ("runs",), ("resume",), ("store", "stats"), ("doctor",)):
        code, out, err = command(tmp_path, *arguments)
        assert code in (1, 2, 3)
        assert CANARY not in out + err
        assert err.count("\n") <= 1, err
    assert holders(tmp_path) == []


class Signed(SimpleHTTPRequestHandler):
    """Gives files until there is one named `over`."""

    def do_GET(self) -> None:
        if Path(self.directory, "over").exists():
            self.send_error(403)
        else:
            super().do_GET()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: the addresses are secret."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The address of a web server on a folder `site`."""
    (tmp_path / "site").mkdir()
    handler = partial(Signed, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        Thread(target=web.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()


SCRIPT = """\
from autoopt import register

@register("marked")
def marked(model):
    model.doc_string = "marked"
    return model
"""


def test_signatures_of_addresses_are_not_kept_and_not_needed_again(site: str, command: Command, tmp_path: Path) -> None:
    """Model, data and script come from addresses with a signature, which is over when the run is resumed."""
    place, web = filled(tmp_path / "run"), tmp_path / "site"
    folder = place.folder
    (folder / "model.onnx").rename(web / "net.onnx")
    (web / "script.py").write_text(SCRIPT)
    np.savez(web / "data.npz", x=np.ones((8, 8), np.float32))
    script = f"user_script: {site}/script.py?signature={CANARY}\n"
    (folder / "dag.yaml").write_text(script + DAG.replace("{pass: expand_functions}", "{pass: marked}"))
    url, data = f"{site}/net.onnx?signature={CANARY}", f"{site}/data.npz?signature={CANARY}"
    run = ("run", "dag.yaml", "--model", url, "--data", data, "--engine", "inline", "--json")
    killed = place.call(*run, AUTOOPT_FAULT="between ask and tell:2", codes=(-9,))
    (web / "over").touch()
    resumed = command(folder, "resume", "--engine", "inline")
    listed, reported = command(folder, "runs", "--json"), command(folder, "report", "--out", "report.html")
    assert "net.onnx" in listed.out
    (web / "over").unlink()
    (folder / "zoo.yaml").write_text(f"name: z\ndag: dag.yaml\nmodels: ['{url}', '{site}/no.zip?{CANARY}']\n")
    swept = command(folder, "sweep", "zoo.yaml", "--engine", "inline", "--out", "swept")
    assert "net" in swept.out
    assert {said.code for said in (resumed, listed, reported, swept)} == {0}
    assert CANARY not in "".join(said.out + said.err for said in (killed, resumed, listed, reported, swept))
    (folder / "zoo.yaml").unlink()
    (folder / "dag.yaml").unlink()  # the user's own words
    assert holders(folder) == []


BAD = (
    "http://bird:{0}@127.0.0.1:9/net.onnx", "http://127.0.0.1:9/net.onnx?sig={0}", "http://{0}@127.0.0.1:9/net.onnx",
    "http://bird:{0}@127.0.0.1:9x/net.onnx", "zip://net.onnx::http://bird:{0}@127.0.0.1:9/z.zip",
    "nothing://bird:{0}@127.0.0.1/net.onnx",
)  # fmt: skip


@pytest.mark.parametrize("address", BAD)
def test_no_error_says_what_is_secret_in_an_address(address: str, command: Command, tmp_path: Path) -> None:
    url = address.format(CANARY)
    filled(tmp_path)
    given = ("--model", "model.onnx", "--engine", "inline", "--quiet")
    for arguments in (
        ("run", "dag.yaml", "--model", url, "--engine", "inline", "--quiet"), ("run", url), ("plan", url),
        ("run", url.replace("net.onnx", "dag.yaml")), ("plan", "dag.yaml", "--model", url), ("init", url),
        ("run", "dag.yaml", *given, "--data", url), ("sweep", url), ("apply", "simplify", url, "-o", "small.onnx"),
        ("replay", url, "--model", "model.onnx"), ("store", "import", url), ("compare", "model.onnx", url),
    ):  # fmt: skip
        code, out, err = command(tmp_path, *arguments)
        assert code == 2, err
        assert CANARY not in out + err
        assert err.count("\n") == 1, err
    assert holders(tmp_path) == []


@pytest.mark.parametrize("words", [("{0}",), ("encoder={0}", "decoder=model.onnx"), ("dag.yaml", "--model", "{0}")])
def test_the_progress_on_a_terminal_does_not_show_a_password(
    words: tuple[str, ...], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, end = os.openpty()
    url = f"http://bird:{CANARY}@127.0.0.1:9/net.onnx"
    with os.fdopen(end, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        said = command(filled(tmp_path).folder, "run", *(word.format(url) for word in words))
        monkeypatch.undo()
    with os.fdopen(terminal, "rb") as stream:
        text = read_to_end(stream)
    assert said.code == 2
    assert b"reading" in text
    assert CANARY.encode() not in text


def read_to_end(stream: BinaryIO) -> bytes:
    """Read a terminal until the last process has closed it, which Linux reports as an error."""
    text = b""
    with suppress(OSError):
        while chunk := stream.read1(4096):  # type: ignore[attr-defined]  # a buffered reader
            text += chunk
    return text


DATA_ROOT = f"https://bird:{CANARY}@127.0.0.1:9/data"


def test_a_root_of_data_with_a_password_is_not_kept(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOOPT_DATA_ROOT", DATA_ROOT)
    filled(tmp_path)
    assert command(tmp_path, "run", "dag.yaml", "--model", "model.onnx", "--engine", "inline").code == 0
    assert command(tmp_path, "store", "backup", "backup").code == 0
    assert holders(tmp_path) == []
