"""Runs that move to another store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import RUN, Command, fill, left

Call = Callable[..., Any]
RUN_HERE = [word for word in RUN if word != "--json"]


@pytest.fixture
def call(command: Command) -> Call:
    """Return `call(folder, "best")`, which runs a command in this process and returns its JSON document."""

    def run(folder: Path, *arguments: str) -> Any:
        code, out, err = command(folder, *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


def test_a_run_moves_to_another_home_with_all_that_belongs_to_it(tmp_path: Path, call: Call) -> None:
    here, there = fill(tmp_path / "here"), tmp_path / "there"
    there.mkdir()
    call(here, *RUN_HERE, "--out", "out")
    documents = {command: call(here, command) for command in ("best", "lineage")}
    run = call(here, "store", "export", "--out", str(tmp_path / "run.tar"))["run"]
    assert call(there, "store", "import", str(tmp_path / "run.tar"), "--reuse") == {"run": run}
    moved = {command: call(there, command) for command in ("best", "lineage")}
    assert moved["best"]["notes"].pop(0).startswith("imported from run.tar")
    moved["lineage"].pop("imported", None)
    assert moved == documents
    assert left(there / "home") == left(here / "home")
    assert call(there, "store", "verify")["ok"]
    assert call(there, "replay", str(here / "out" / "recipe.json"), "--model", str(here / "model.onnx"))["same"]
    (here / "home" / "autoopt.db").unlink()
    assert call(there, "store", "stats")["rows"]["trial"] == 4
