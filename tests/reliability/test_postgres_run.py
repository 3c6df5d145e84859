"""A store that moves to a PostgreSQL server."""

from __future__ import annotations

import json
from pathlib import Path

import postgres
import pytest
from builders import mlp, write
from outside import RUN, Command, filled

pytestmark = pytest.mark.service


def test_a_store_of_sqlite_goes_on_in_postgresql(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a backup, with all that it has: a finished run answers, an interrupted one is resumed."""
    place = filled(tmp_path)
    finished = json.loads(command(tmp_path, *RUN).out)
    write(mlp(width=48), tmp_path / "other")
    other = ("run", "dag.yaml", "--model", "other/model.onnx", *RUN[4:])
    place.call(*other, AUTOOPT_FAULT="between ask and tell:2", codes=(-9,))
    documents = {name: command(tmp_path, name, finished["run"], "--json").out for name in ("runs", "lineage")}
    assert command(tmp_path, "store", "backup", "backup").code == 0
    with postgres.empty_schema() as url, monkeypatch.context() as patch:
        place.home.rename(tmp_path / "away")
        patch.setenv("AUTOOPT_DB_URL", url)
        code, _, err = command(tmp_path, "store", "restore", "backup")
        assert (code, err) == (0, "")
        assert {name: command(tmp_path, name, finished["run"], "--json").out for name in documents} == documents
        assert command(tmp_path, "store", "verify").code == 0
        again = json.loads(command(tmp_path, *RUN).out)
        assert (again["run"], again["reused"]) == (finished["run"], True)
        (resumed,) = json.loads(command(tmp_path, "resume", "--engine", "inline", "--json").out)
        assert resumed["pass_runs"]["reused"] > 0
        code, _, err = command(tmp_path, "store", "restore", "backup")
        assert (code, err.count("\n")) == (2, 1)
        assert "a backup is restored into an empty store" in err
