"""`autoopt export`."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoopt.store import open_store


def test_the_best_model_of_the_latest_run_is_the_default(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    code, out, err = call("export", "-o", "made")
    assert (code, err) == (0, "")
    assert out == "wrote made/: fold -> static: 3.3x faster (3.2 to 3.4)\n"
    assert (tmp_path / "made" / "model.onnx").read_bytes() == b"best"
    recipe = json.loads((tmp_path / "made" / "recipe.json").read_text())
    assert [step["pass"] for step in recipe["steps"]] == ["batchnorm_folding", "static_quantization"]


def test_files_of_an_earlier_model_go_and_other_files_stay(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    for name in ("model.onnx.data", "model.ort", "notes.txt"):
        (tmp_path / "out" / name).write_text("old")
    assert call("export").code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.onnx", "notes.txt"} <= names
    assert not names & {"model.onnx.data", "model.ort"}


def test_a_trial_is_named_by_its_number(call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path) -> None:
    code, out, _ = call("export", filled["run"][:6], "0", "-o", "small.zip", "--json")
    assert code == 0
    assert json.loads(out) == {
        "run": filled["run"],
        "trial": 0,
        "path": str(tmp_path / "small.zip"),
        "artifact": filled["best"]["artifact"],
    }
    with zipfile.ZipFile(tmp_path / "small.zip") as archive:
        assert archive.read("small/model.onnx") == b"best"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("latest", "1"), "has no model (odd); 'autoopt report' lists the trials"),
        (("latest", "7"), "has no trial 7"),
        (("latest", "--target", "gpu"), "has no target 'gpu'; it has a single target"),
    ],
)
def test_what_is_not_there_is_one_line(
    call: Callable[..., Any], filled: dict[str, Any], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = call("export", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_cancelled_run_has_its_best_so_far(call: Callable[..., Any], filled: dict[str, Any], home: Path) -> None:
    with open_store(None, home) as store:
        assert store.claims.acquire("run", filled["run"], redo=True)
        store.runs.update(filled["run"], {**filled, "status": "running"})
    assert "So far: 3.3x faster (3.2 to 3.4). Get it: autoopt export" in call("best").out
    with open_store(None, home) as store:
        store.runs.finish(filled["run"], "cancelled", filled)
    assert f"Go on: autoopt resume {filled['run']}" in call("best").out
    assert json.loads(call("best", "--json").out)["status"] == "cancelled"
    assert "cancelled" in call("runs").out
    assert call("export", "-o", "made").code == 0
    assert call("report").code == 0
