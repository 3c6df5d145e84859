"""Stores that are cleaned, moved and damaged around real runs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import RUN, fill, finish, left, start

from autoopt.cli.app import main
from autoopt.engine.tools.maintenance import verify_store
from autoopt.settings import settings
from autoopt.store import open_store

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """`call(folder, "best", "--json")`: a command in this process, with its home in `folder`; its JSON document."""
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)

    def run(folder: Path, *arguments: str) -> Any:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("AUTOOPT_HOME", str(folder / "home"))
        settings.cache_clear()
        capfd.readouterr()
        code = main([*arguments, "--json"])
        out, err = capfd.readouterr()
        assert code == 0, err
        return json.loads(out)

    return run


def test_gc_beside_a_run_takes_nothing_that_it_needs(tmp_path: Path, call: Call) -> None:
    fill(tmp_path)
    finish(start(fill(tmp_path / "quiet"), *RUN))
    old = finish(start(fill(tmp_path / "busy", width=48), *RUN))  # an older run, to be forgotten meanwhile
    fill(tmp_path / "busy")
    gc = ("store", "gc", "--keep-runs", "1", "--max-size", "0", "--yes")
    running, forgotten = start(tmp_path / "busy", *RUN), []
    assert running.stderr is not None
    for line in running.stderr:
        if "trial" in line:
            forgotten += call(tmp_path / "busy", *gc)["runs"]
    finish(running)
    # The run may end before or after the last collection above; this one is certainly after its end.
    forgotten += call(tmp_path / "busy", *gc)["runs"]
    assert forgotten == [old["run"]]
    assert left(tmp_path / "busy" / "home") == left(tmp_path / "quiet" / "home")
    with open_store(None, tmp_path / "busy" / "home") as store:
        assert verify_store(store).ok


def test_a_run_moves_to_another_home_with_all_that_belongs_to_it(tmp_path: Path, call: Call) -> None:
    here, there = fill(tmp_path / "here"), tmp_path / "there"
    there.mkdir()
    finish(start(here, *RUN, "--out", "out"))
    told = {command: call(here, command) for command in ("best", "lineage")}
    run = call(here, "store", "export", "--out", str(tmp_path / "run.tar"))["run"]
    assert call(there, "store", "import", str(tmp_path / "run.tar")) == {"run": run}
    assert {command: call(there, command) for command in ("best", "lineage")} == told
    assert left(there / "home") == left(here / "home")
    assert call(there, "store", "verify")["ok"]
    assert call(there, "replay", str(here / "out" / "recipe.json"), "--model", str(here / "model.onnx"))["same"]
    (here / "home" / "autoopt.db").unlink()
    assert call(there, "store", "stats")["rows"]["trial"] == 4


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_every_damage_to_a_runs_artifacts_is_named_and_repaired(tmp_path: Path, count: int) -> None:
    """Damage is done to many artifacts at once, so that `verify` and its repair run for each batch, not each flip."""
    fill(tmp_path)
    finish(start(tmp_path, *RUN))
    rng = random.Random(count)
    with open_store(None, tmp_path / "home") as store:
        source = store.runs.get("latest").model
        whole = {a.digest: store.artifacts.path(a.digest).read_bytes() for a in store.artifacts.all()}
        made = sorted(set(whole) - {source})
        assert len(made) >= 3
        done = batch = 0
        while done < count:
            damaged = set(rng.sample(made, rng.randint(1, len(made))))
            for digest in damaged:
                _damage(store.artifacts.path(digest), whole[digest], rng)
            done, batch = done + len(damaged), batch + 1
            repair = batch % 10 == 1
            found = verify_store(store, repair=repair)
            assert {p.digest for p in found.problems} == damaged
            assert all(p.repaired == repair for p in found.problems)
            for digest in damaged if not repair else ():
                path = store.home / "artifacts" / digest[:2] / digest / "model.onnx"
                path.unlink(missing_ok=True)
                path.write_bytes(whole[digest])
            assert {d: store.artifacts.path(d).read_bytes() for d in made} == {d: whole[d] for d in made}


def _damage(path: Path, content: bytes, rng: random.Random) -> None:
    """Flip a bit, cut off the end, or take the file away."""
    at = rng.randrange(len(content))
    path.unlink()
    kind = rng.choice(("flip", "truncate", "delete"))
    if kind == "flip":
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
    elif kind == "truncate":
        path.write_bytes(content[:at])
