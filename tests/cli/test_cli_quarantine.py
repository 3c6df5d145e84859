"""The quarantine in `autoopt store verify`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoopt.cli.app import main
from autoopt.outcome import Outcome
from autoopt.problem.stored_quarantine import stored_quarantine
from autoopt.settings import settings
from autoopt.store import open_store
from autoopt.workers import CallResult
from autoopt.workers.quarantine import Subject

DIED = CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store in which a pass has killed two workers."""
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path))
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)
    settings.cache_clear()
    with open_store(None, tmp_path) as store:
        for _ in range(2):
            stored_quarantine(store).note(Subject("a" * 64, "simplify on model 1f2e3d"), DIED)
    yield tmp_path
    settings.cache_clear()


def test_the_quarantine_is_listed_and_lifted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "verify"]) == 0
    listed = capsys.readouterr().out
    assert all(text in listed for text in ("--lift aaaaaaaaaaaa", "simplify on model 1f2e3d", "SIGSEGV"))
    assert main(["store", "verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quarantine"][0]["deaths"] == 2
    assert main(["store", "verify", "--lift", "aaaa"]) == 0
    assert capsys.readouterr().out == "lifted: simplify on model 1f2e3d\n"
    assert main(["store", "verify"]) == 0
    assert "quarantine" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bbbb", ""])
def test_lifting_needs_an_id_that_is_in_quarantine_or_all(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "verify", "--lift", name]) == 2
    assert "'autoopt store verify' shows" in capsys.readouterr().err
    assert main(["store", "verify", "--lift", "all"]) == 0
