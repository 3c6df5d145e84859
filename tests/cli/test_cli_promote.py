"""`autoopt promote`, `rollback` and `releases`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from children import HANG_SECONDS, start_process
from object_store import bucket
from store_owners import by

from autoopt.store import open_store
from autoopt.store.gc import collect
from autoopt.zoo.releases import release_histories

Call = Callable[..., Any]
AS = ("--name", "production/cnn")


def live(tmp_path: Path) -> bytes:
    return (tmp_path / "live" / "current" / "model.onnx").read_bytes()


def test_a_model_is_promoted_rolled_back_and_listed(call: Call, filled: dict[str, Any], tmp_path: Path) -> None:
    code, out, err = call("promote", filled["run"], "0", *AS, "--to", "live", "--to", "second")
    assert (code, err) == (0, "")
    assert out.startswith("released production/cnn 1: 3.3x faster (3.2 to 3.4) (fold -> static), published to ")
    assert live(tmp_path) == b"best"
    assert json.loads((tmp_path / "live" / "current" / "release.json").read_text())["trial"] == 0
    assert call("promote", filled["run"], *AS).err == "production/cnn 1: is released already\n"
    assert call("promote", "--undo", "cnn").err.startswith("cnn: release production/cnn 1 is the first one")
    with open_store(None, tmp_path / ".autoopt") as store:
        assert collect(store, dry_run=True, keep_runs=0).runs == ()
    code, out, _ = call("promote", "--list", "--json")
    assert [(row["number"], row["current"]) for row in json.loads(out)] == [(1, True)]


def test_a_model_is_released_to_an_object_store(
    call: Call, filled: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    with bucket(monkeypatch) as url:
        assert call("promote", filled["run"], *AS, "--to", f"{url}/cnn").code == 0
        system = s3fs.S3FileSystem()
        system.invalidate_cache()
        current = json.loads(system.cat_file(f"{url}/cnn/current.json"))
        assert current["model"] == "cnn"
        assert system.cat_file(f"{url}/cnn/{current['folder']}/model.onnx") == b"best"
        other = ("--name", "production/other", "--to", f"{url}/cnn")
        assert "is not release production/other 1" in call("promote", filled["run"], *other).err
    assert "cannot publish there" in call("promote", filled["run"], *AS, "--to", "s3://artifacts/cnn2").err


def test_what_was_released_before_is_released_again_at_the_same_places(
    call: Call, filled: dict[str, Any], tmp_path: Path
) -> None:
    assert call("promote", filled["run"], *AS, "--to", "live", "--to", "second").code == 0
    with open_store(None, tmp_path / ".autoopt") as store:
        record = store.runs.get(filled["run"])
        better = {**filled, "best": {**filled["best"], "artifact": filled["baseline"]["artifact"], "chain": "source"}}
        other = store.runs.create(type(record)(id="", name="cnn", identity="j", model=record.model))
        store.runs.finish(other.id, "finished", {**better, "run": other.id})
    assert call("promote", other.id, *AS).code == 0
    assert live(tmp_path) == b"source"
    said = call("promote", "--undo", "production/cnn")
    assert said.out.startswith("took back production/cnn 2; released again production/cnn 1: 3.3x faster")
    assert live(tmp_path) == b"best"
    assert (tmp_path / "second" / "current").readlink() == Path("1")
    assert "rolled back by" in call("promote", "--list").out


def test_after_a_rollback_the_places_are_those_of_the_release_that_was_taken_back(
    call: Call, filled: dict[str, Any], tmp_path: Path
) -> None:
    assert call("promote", filled["run"], *AS, "--to", "old").code == 0
    assert call("promote", filled["run"], *AS, "--to", "live").code == 0
    said = call("promote", "--undo", "production/cnn")
    assert said.out.strip().endswith(f"published to {tmp_path / 'live'}")
    assert (tmp_path / "live" / "current").readlink() == Path("1")
    with open_store(None, tmp_path / ".autoopt") as store:
        history = release_histories(store, "production")["cnn"]
    assert history.current.places == (str(tmp_path / "live"),)
    assert call("promote", filled["run"], *AS).code == 2  # is released there already
    taken_back, in_use = call("promote", "--list").out.splitlines()[1:]
    assert "rolled back by" in taken_back
    assert "  released  " in in_use
    assert in_use.endswith(str(tmp_path / "live"))


PROMOTE = """
import sys
from autoopt.cli.app import main
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main(["promote", *sys.argv[1:], "--name", "production/cnn"]))
"""


def test_promotions_at_the_same_time_get_numbers_of_their_own(call: Call, filled: dict[str, Any]) -> None:
    command = [sys.executable, "-c", PROMOTE, filled["run"], "0", "--to"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [start_process([*command, place], **pipes) for place in ("live", "other")]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [(process.communicate(timeout=HANG_SECONDS)[1], process.returncode) for process in processes]
    numbers = [row["number"] for row in json.loads(call("promote", "--list", "--json").out)]
    assert sorted(numbers) == list(range(1, 1 + len(numbers)))
    assert [code for _, code in ends].count(0) == len(numbers)
    for said, code in ends:
        assert not code or "is promoting or rolling back this model now; try again when that has ended" in said


OTHER = "from autoopt.owner import this_process; print(this_process(), flush=True); input()"


@pytest.mark.parametrize(("owner", "code"), [("living", 2), ("dead", 0)])
def test_a_promotion_waits_for_no_process_that_has_died(
    call: Call, filled: dict[str, Any], tmp_path: Path, owner: str, code: int
) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = start_process([sys.executable, "-c", OTHER], **pipes)
    process = other.stdout.readline().strip()
    if owner == "dead":
        other.communicate("\n", timeout=HANG_SECONDS)
    with open_store(None, tmp_path / ".autoopt") as store:
        assert by(store, process).claims.acquire("release", "production/cnn")
    said = call("promote", filled["run"], *AS)
    assert said.code == code
    if code:
        assert said.err.startswith(f"production/cnn: process {other.pid} on ")
        assert "is promoting or rolling back this model now; try again when that has ended" in said.err
        other.communicate("\n", timeout=HANG_SECONDS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nothing",), "MODEL: no model or run 'nothing'; name a model as 'autoopt nights' lists it, or a run as"),
        (("RUN",), "belongs to no sweep; add --name ZOO/MODEL: what it is a release of"),
        (("RUN", "9", *AS), "has no trial 9"),
        (("RUN", *AS, "--to", "mlflow:"), "--to: 'mlflow:' names no model; write mlflow:NAME"),
        (("RUN", *AS, "--to", "file"), "is a file, not a folder for results"),
        (("RUN", *AS, "--to", "s3://key:secret@bucket/cnn"), "s3://key:***@bucket/cnn: has a password or a signature"),
    ],
)
def test_promotions_that_are_refused(
    call: Call, filled: dict[str, Any], tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    (tmp_path / "file").write_text("mine")
    words = [filled["run"] if word == "RUN" else word for word in arguments]
    code, out, err = call("promote", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err
    assert call("promote", "--list").out.startswith("nothing is released")
