"""Stores that are cleaned, moved and damaged around real runs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import RUN, Command, fill, finish, left, start

from autoopt.engine.tools.maintenance import verify_store
from autoopt.store import open_store

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


def test_gc_beside_a_run_takes_nothing_that_it_needs(tmp_path: Path, call: Call) -> None:
    fill(tmp_path)
    quiet, busy = tmp_path / "quiet" / "here", tmp_path / "busy" / "here"  # a model has the name of its folder
    for folder in (quiet, busy):
        old = call(fill(folder, width=48), *RUN_HERE)  # an older run, to be forgotten meanwhile
        fill(folder)
    call(quiet, *RUN_HERE)
    gc = ("store", "gc", "--keep-runs", "1", "--max-size", "0", "--yes")
    running, forgotten = start(busy, *RUN), []
    assert running.stderr is not None
    for line in running.stderr:
        if "trial" in line:
            forgotten += call(busy, *gc)["runs"]
    finish(running)
    # The run may end before or after the last collection above; this one is certainly after its end.
    forgotten += call(busy, *gc)["runs"]
    assert forgotten == [old["run"]]
    assert left(busy / "home") == left(quiet / "home")
    with open_store(None, busy / "home") as store:
        assert verify_store(store).ok


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


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_every_damage_to_a_runs_artifacts_is_named_and_repaired(tmp_path: Path, call: Call, count: int) -> None:
    """Damage many artifacts at once, so that `verify` and its repair run once for each batch."""
    call(fill(tmp_path), *RUN_HERE)
    rng = random.Random(count)
    with open_store(None, tmp_path / "home") as store:
        source = store.runs.get("latest").model
        whole = {a.digest: store.artifacts.path(a.digest).read_bytes() for a in store.artifacts.all()}
        derived = sorted(set(whole) - {source})
        assert len(derived) >= 3
        damages = batch = 0
        while damages < count:
            damaged = set(rng.sample(derived, rng.randint(1, len(derived))))
            for digest in damaged:
                _damage(store.artifacts.path(digest), whole[digest], rng)
            damages, batch = damages + len(damaged), batch + 1
            repair = batch % 10 == 1
            report = verify_store(store, repair=repair)
            assert {p.digest for p in report.problems} == damaged
            assert all(p.repaired == repair for p in report.problems)
            for digest in damaged if not repair else ():
                path = store.home / "artifacts" / digest[:2] / digest / "model.onnx"
                path.unlink(missing_ok=True)
                path.write_bytes(whole[digest])
            assert {d: store.artifacts.path(d).read_bytes() for d in derived} == {d: whole[d] for d in derived}


def _damage(path: Path, content: bytes, rng: random.Random) -> None:
    """Flip a bit, cut off the end, or take the file away."""
    at = rng.randrange(len(content))
    path.unlink()
    kind = rng.choice(("flip", "truncate", "delete"))
    if kind == "flip":
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
    elif kind == "truncate":
        path.write_bytes(content[:at])
