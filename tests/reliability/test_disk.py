"""Homes on network file systems, and databases that are newer, through the real command."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from commands import RUN, Command, fill

from autoopt.store import open_store
from autoopt.store.files import filesystem


@pytest.mark.parametrize(
    "words", [RUN, ("runs",), ("runs", "latest"), ("store", "stats"), ("resume", "--engine", "inline")]
)
def test_what_the_store_cannot_be_on_or_of_is_one_line(
    words: tuple[str, ...], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    with open_store(None, tmp_path / "home"):
        pass

    def refusal() -> str:
        code, out, err = command(tmp_path, *words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        return err

    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "filesystem_of", lambda *_: "nfs4")
        assert "SQLite does not work on the network file system nfs4; set AUTOOPT_HOME" in refusal()
    with sqlite3.connect(tmp_path / "home" / "autoopt.db") as connection:
        connection.execute("UPDATE schema_version SET version = version + 1")
    assert "upgrade autoopt" in refusal()
