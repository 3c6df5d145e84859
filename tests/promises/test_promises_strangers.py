"""Recipes, DAGs and packages of strangers are read, never run: scripts need consent and the recorded content."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from outside import DAG, RUN, Place, filled, one_line

pytestmark = pytest.mark.service

SCRIPT = """\
from pathlib import Path

from autoopt import register

Path(__file__).with_name("was-run").touch()


@register("own")
def own(model):
    model.graph.node[0].name = "renamed"
    return model
"""
REPLAY = ("replay", "out", "--model", "model.onnx", "--out", "made")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder with a run whose best model a script made, and its package."""
    scripted = DAG.replace("passes:\n", "user_script: script.py\npasses:\n  own: {pass: own}\n")
    scripted = scripted.replace("[[names, tidy, quant], [tidy]]", "[[own, names, tidy, quant]]")
    place = filled(tmp_path_factory.mktemp("original") / "user", scripted, width=512)
    place.write("script.py", SCRIPT)
    place.call(*RUN)
    return place


@pytest.fixture
def package(original: Place) -> Iterator[Place]:
    """The same folder, as it was, and the script has not run."""
    (original / "was-run").unlink(missing_ok=True)
    recipe = (original / "out" / "recipe.json").read_text()
    yield original
    original.write("out/recipe.json", recipe)
    original.write("script.py", SCRIPT)
    shutil.rmtree(original / "made", ignore_errors=True)


def test_a_script_of_a_recipe_runs_only_with_consent(package: Place) -> None:
    assert "--allow-script" in one_line(package.call(*REPLAY, codes=(1, 2)))
    assert not (package / "was-run").exists()
    package.write("script.py", SCRIPT + "# another one\n")
    one_line(package.call(*REPLAY, "--allow-script", codes=(1, 2)))
    assert not (package / "was-run").exists()
    package.write("script.py", SCRIPT)
    package.call(*REPLAY, "--allow-script")
    assert (package / "was-run").exists()


def test_a_script_of_a_stored_run_repairs_only_with_consent(package: Place) -> None:
    source = package.call("runs", "latest", "--json").document["baseline"]["artifact"]
    derived = [path for path in (package.home / "artifacts").glob("*/*/model.onnx") if path.parent.name != source]
    whole = {path: path.read_bytes() for path in derived}
    for path in derived:
        path.unlink()
    package.call("store", "verify", "--repair", codes=(1, 2))
    assert not (package / "was-run").exists()
    package.call("store", "verify", "--repair", "--allow-script")
    assert (package / "was-run").exists()
    assert {path: path.read_bytes() for path in derived} == whole


CHANGES: dict[str, Any] = {
    "no object": [],
    "nothing": {},
    "another version": {"recipe": 99},
    "no steps": {"steps": None},
    "an unknown pass": {"steps": [{"pass": "os.system", "params": {"command": "touch was-run"}}]},
    "wrong parameters": {"steps": [{"pass": "simplify", "params": {"iterations": "many", "__class__": 1}}]},
    "a script elsewhere": {"user_script": "/etc/passwd"},
    "a script as an address": {"user_script": "http://127.0.0.1:9/evil.py"},
    "another source": {"source": "0" * 64},
    "a result that is a path": {"result": "../../../etc/passwd"},
    "options that load libraries": {"session_options": {"register_custom_ops_library": "/tmp/evil.so"}},
    "numbers for texts": {"chain": 3, "run": 4, "source_files": 5, "calibration": 6},
    "a million steps": {"steps": [{"pass": "name_fix", "params": {}}] * 100_000},
}
QUICK = ("nothing", "an unknown pass", "a script as an address", "options that load libraries")


@pytest.mark.parametrize("forged", [False, True], ids=["edited", "forged"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.soak) for n in CHANGES])
def test_a_changed_recipe_is_one_line(name: str, forged: bool, package: Place) -> None:
    """`forged`: with a digest that belongs to its new content."""
    change, recipe = CHANGES[name], json.loads((package / "out" / "recipe.json").read_text())
    changed = recipe | change if isinstance(change, dict) and change else change
    if forged and isinstance(changed, dict):
        changed.pop("digest", None)
        changed["digest"] = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    package.write("out/recipe.json", json.dumps(changed))
    one_line(package.call(*REPLAY, codes=(1, 2)))
    assert not (package / "was-run").exists()
    assert not (package / "made" / "model.onnx").exists()


def test_planning_the_dag_of_a_stranger_writes_nothing_outside_the_home(package: Place) -> None:
    """Its name, its nodes and its paths are read; a run writes into `out` and the home."""
    before = {path for path in package.folder.rglob("*") if ".home" not in path.parts and ".tmp" not in path.parts}
    for old, new in (("name: small", "name: ../../evil"), ("pass: own", "pass: ../evil"), ("tidy:", "../evil:")):
        package.write("evil.yaml", (package / "dag.yaml").read_text().replace(old, new))
        assert package.call("plan", "evil.yaml", codes=(2,)).err.startswith("evil.yaml:")
    (package / "evil.yaml").unlink()
    after = {path for path in package.folder.rglob("*") if ".home" not in path.parts and ".tmp" not in path.parts}
    assert after - before <= {package / "was-run"}  # `plan` of a DAG with a script reads the script
