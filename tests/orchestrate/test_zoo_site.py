"""The read-only site of the zoos."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from builders import cnn, write

from autoopt.engine.sweeps.request import SweepRequest
from autoopt.engine.sweeps.sweep import run_sweep
from autoopt.errors import InputError
from autoopt.orchestrate.zoo_site import Pages, ZooSite
from autoopt.settings import settings
from autoopt.store import RunRecord, open_store

DAG = "name: d\npasses: [simplify]\nchains: [[simplify]]\nobjectives: [{metric: size}]\nconstraints: []\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A zoo with one night; the environment names its store."""
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)
    settings.cache_clear()
    write(cnn(), tmp_path / "cnn")
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "zoo.yaml").write_text("name: small\ndag: dag.yaml\nmodels: [cnn]\n")
    night(tmp_path)
    yield tmp_path
    settings.cache_clear()


def night(folder: Path) -> str:
    return run_sweep(SweepRequest(zoo=folder / "zoo.yaml")).sweep


@contextmanager
def site(password: str = "", prefect: str = "") -> Iterator[httpx.Client]:
    with ZooSite("127.0.0.1", 0, Pages(prefect), password) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", timeout=300) as client:
                yield client
        finally:
            server.shutdown()


def link(text: str, beginning: str) -> str:
    """The first address on a page that begins so."""
    return beginning + text.partition(f'href="{beginning}')[2].partition('"')[0]


def test_pages_lead_from_the_zoos_to_a_night_a_run_and_prefect(folder: Path) -> None:
    with site(prefect="http://prefect.example") as client:
        zoos = client.get("/").raise_for_status().text
        assert "No regression in 1 model" in zoos
        zoo = client.get(link(zoos, "/zoo/")).raise_for_status().text
        model = client.get(link(zoo, "/zoo/small/")).raise_for_status().text
        assert link(model, "/run/") == link(zoo, "/run/")
        sweep = client.get(link(zoo, "/sweep/")).raise_for_status().text
        assert link(zoo, "/run/") == link(sweep, "/run/")
        run = client.get(link(sweep, "/run/")).raise_for_status().text
        assert "autoopt lineage" in run
        identifier = link(sweep, "/run/").rpartition("/")[2]
        assert f'href="http://prefect.example/runs?tags=run%3A{identifier}"' in run
        again = night(folder)
        assert again in client.get("/zoo/small").text, "a page is rendered again once it has changed"


def test_a_run_whose_result_cannot_be_read_has_no_page(folder: Path) -> None:
    with open_store() as store:
        run = store.runs.create(RunRecord(id="", name="odd", identity="odd", model=store.models.all()[0].artifact))
        store.runs.finish(run.id, "finished", {"best": 7})
    with site() as client:
        answer = client.get(f"/run/{run.id}")
        assert answer.status_code == 404
        assert f"the result of run {run.id} cannot be read" in answer.text


def test_the_site_asks_for_the_password(folder: Path) -> None:
    with site("autoopt:pass:word") as client:
        refused = client.get("/")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Basic realm="autoopt"')
        assert "small" not in refused.text
        assert client.get("/", auth=("autoopt", "pass")).status_code == 401
        assert client.get("/metrics", auth=("autoopt", "pass:word")).status_code == 200


def test_what_needs_no_password_is_only_for_this_machine(folder: Path) -> None:
    with pytest.raises(InputError, match=r"others can reach 0\.0\.0\.0, so the site needs a password"):
        ZooSite("0.0.0.0", 0, Pages(), "")
    with site() as client:
        assert client.get("/", headers={"Host": "rebound.example"}).status_code == 401
        assert client.get("/", headers={"Host": "localhost:80"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/zoo/other", "/sweep/nothing", "/run/nothing", "/x", "/zoo/%2e%2e/etc", "/zoo/", "/zoo/small/*"]
)
def test_an_unknown_page_is_one_line(folder: Path, path: str) -> None:
    with site() as client:
        answer = client.get(path)
        assert (answer.status_code, answer.text.count("\n")) == (404, 1)


def test_the_site_only_reads(folder: Path) -> None:
    with site() as client:
        assert client.post("/", json={}).status_code == 501
        assert client.head("/").text == ""
