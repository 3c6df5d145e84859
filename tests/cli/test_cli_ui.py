"""`autoopt ui`: pages for whoever has the link."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from builders import mlp, write
from children import HANG_SECONDS, start_process

import autoopt


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs."""
    folder = tmp_path_factory.mktemp("ui")
    model = write(mlp(width=64), folder / "<b>m")
    for metric in ("size", "peak_memory"):
        dag = {"name": metric, "passes": ["simplify"], "chains": [["simplify"]], "constraints": []}
        autoopt.run({**dag, "objectives": [{"metric": metric}]}, model=model, out=None, home=folder / "home")
    return folder / "home"


@pytest.fixture
def link(home: Path) -> Iterator[str]:
    """The link of a server."""
    environment = {**os.environ, "AUTOOPT_HOME": str(home)}
    process = start_process([sys.executable, "-m", "autoopt", "ui"], env=environment, stdout=-1, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_SECONDS) == 0


def test_without_the_token_there_is_no_page(link: str) -> None:
    address = link.partition("?")[0]
    assert httpx.get(address).status_code == 401
    assert httpx.get(f"{address}?token=guess").status_code == 401
    assert httpx.get(f"{address}run/latest", headers={"Cookie": "autoopt=guess"}).status_code == 401
    assert httpx.get(link, headers={"Host": "elsewhere.example"}).status_code == 403
    assert httpx.post(link).status_code == 501


def test_the_link_leads_to_runs_and_their_comparison(link: str) -> None:
    with httpx.Client(base_url=link.partition("?")[0], follow_redirects=True, timeout=HANG_SECONDS) as browser:
        index = browser.get(link)
        assert "token" not in str(index.url)
        assert "&lt;b&gt;m" in index.text
        assert "<b>m" not in index.text
        ids = [part.partition('"')[0] for part in index.text.split('href="/run/')[1:]]
        assert len(ids) == 2
        assert "smaller" in browser.get(f"/run/{ids[1]}").text
        assert "second is" in browser.get("/compare", params={"old": ids[1], "new": ids[0]}).text
        for path in ("/run/nosuch", "/zoo/nosuch", "/run/../autoopt.db", "/compare"):
            assert browser.get(path).status_code == 404, path
