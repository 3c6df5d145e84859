"""Forms that follow the files of a folder; a small server keeps the deployments as Prefect's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from prefect.utilities.callables import parameter_schema

from autoopt.orchestrate.forms import only_choices, with_choices, without_other_fields
from autoopt.orchestrate.server import form_refresh
from autoopt.orchestrate.server.form_refresh import FormRefresh
from flows.nightly_sweep import nightly_sweep

DAG = "name: d\npasses: [name_fix]\nchains: [[name_fix]]\n"
ZOO = "name: z\nmodels: [{path: a, tags: [TAG]}]\n"


class Deployments(ThreadingHTTPServer):
    """Deployments by their names."""

    def __init__(self, port: int) -> None:
        self.deployments: dict[str, Any] = {}
        self.changes = 0
        super().__init__(("127.0.0.1", port), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Deployments

    def do_POST(self) -> None:
        self._read()
        self._answer([{"id": name, "parameter_openapi_schema": form} for name, form in self.server.deployments.items()])

    def do_PATCH(self) -> None:
        self.server.deployments[self.path.rpartition("/")[2]] = self._read()["parameter_openapi_schema"]
        self.server.changes += 1
        self._answer({})

    def _read(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, document: object) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[Deployments]:
    with Deployments(0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def form(folder: Path, *, any_zoo: bool) -> dict[str, Any]:
    schema = parameter_schema(nightly_sweep)
    schema.properties = with_choices(schema.properties, {"dag": [], "zoo": ["zoo.yaml"] if any_zoo else []})
    if not any_zoo:
        only_choices(schema.properties, "zoo", [str(folder / "zoo.yaml")])
        only_choices(schema.properties, "only", ["cnn"])
    document: dict[str, Any] = without_other_fields(schema).model_dump(mode="json", exclude_unset=True)
    return document


def choices(document: dict[str, Any], name: str) -> list[str]:
    field = document["properties"][name]
    return field.get("enum") or [value for one in field.get("anyOf", ()) for value in one.get("enum", ())]


def test_new_files_and_tags_reach_the_forms(
    server: Deployments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form_refresh, "LOOK_SECONDS", 0.0)
    (tmp_path / "zoo.yaml").write_text(ZOO.replace("TAG", "cnn"))
    server.deployments = {
        "any": form(tmp_path, any_zoo=True),
        "this": form(tmp_path, any_zoo=False),
        "elsewhere": form(tmp_path / "elsewhere", any_zoo=False),
    }
    elsewhere = server.deployments["elsewhere"]
    refresh = FormRefresh(f"http://127.0.0.1:{server.server_port}/api", tmp_path)
    refresh.look()
    assert server.changes == 0, "no file has changed"
    (tmp_path / "new.yaml").write_text(DAG)
    (tmp_path / "zoo.yaml").write_text(ZOO.replace("TAG", "int8"))
    refresh.look()
    refresh.look()
    assert server.changes == 2, "each form that changed, once"
    assert choices(server.deployments["any"], "dag") == ["new.yaml"]
    assert choices(server.deployments["any"], "zoo") == ["zoo.yaml"]
    assert choices(server.deployments["this"], "dag") == [str(tmp_path / "new.yaml")]
    assert choices(server.deployments["this"], "only") == ["int8"]
    assert not server.deployments["any"]["additionalProperties"]
    assert server.deployments["elsewhere"] == elsewhere

    (tmp_path / "new.yaml").unlink()
    refresh.look()
    assert server.deployments["any"]["properties"] == form(tmp_path, any_zoo=True)["properties"]


def test_a_change_is_not_lost_while_the_server_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form_refresh, "LOOK_SECONDS", 0.0)
    port = free_port()
    refresh = FormRefresh(f"http://127.0.0.1:{port}/api", tmp_path)
    (tmp_path / "new.yaml").write_text(DAG)
    refresh.look()
    with Deployments(port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.deployments = {"any": form(tmp_path, any_zoo=True)}
        refresh.look()
        server.shutdown()
    assert choices(server.deployments["any"], "dag") == ["new.yaml"]
