"""`autoopt run` again: the same command is answered by a look-up while all that its answer follows from is the same."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from children import HANG_SECONDS

from autoopt.api import execute
from autoopt.cli.app import main
from autoopt.results import RunResult
from autoopt.store import open_store

DIGITS = Path(__file__).parents[2] / "dags" / "digits"
FILES = ("model.onnx", "evaluation.npz", "calibration.npz")
DAG: dict[str, Any] = {
    "name": "small",
    "model": "model.onnx",
    "user_script": "script.py",
    "data": {"evaluation": "evaluation.npz", "calibration": "calibration.npz"},
    "passes": {
        "constants": {"pass": "constant_folding"},
        "fold": {"pass": "batchnorm_folding"},
        "compare": {"pass": "equivalence", "params": {"origin": "origin.onnx"}},
    },
    "chains": [["constants", "fold", "compare"]],
    "objectives": [{"metric": "size"}],
    "constraints": [{"metric": "accuracy", "max_drop": 0.01}],
}
SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
import helper
"""
PROGRAM = """
import sys
from autoopt.cli.app import main
code = main(sys.argv[1:])
print("sqlalchemy" in sys.modules or "autoopt.dag" in sys.modules, file=sys.stderr)
sys.exit(code)
"""


class Folder:
    """A folder with a DAG, its files, and a library that any distribution can be installed into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = path / "library"
        self.library.mkdir()
        for name in FILES:
            shutil.copyfile(DIGITS / name, path / name)
        (path / "script.py").write_text(SCRIPT)
        (path / "helper.py").write_text("VALUE = 1\n")
        origin = onnx.load(DIGITS / "model.onnx")
        onnx.save(origin, path / "origin.onnx", save_as_external_data=True, location="origin.data", size_threshold=0)
        (path / "dag.json").write_text(json.dumps(DAG))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("answers"))


Run = Callable[..., tuple[dict[str, Any], bool]]


@pytest.fixture
def run(folder: Folder, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return `run("--fresh")`, which gives the document of `autoopt run`, and True if it was executed."""
    monkeypatch.chdir(folder.path)
    monkeypatch.syspath_prepend(str(folder.library))
    executed: list[object] = []

    def record_and_execute(*arguments: Any) -> RunResult:
        executed.append(arguments)
        return execute(*arguments)

    monkeypatch.setattr("autoopt.api.execute", record_and_execute)

    def call(*options: str) -> tuple[dict[str, Any], bool]:
        executed.clear()
        code = main(("run", "dag.json", "--json", "--quiet", *options))
        out, err = capfd.readouterr()
        assert code == 0, err
        return json.loads(out), bool(executed)

    return call


def run_in_process_of_its_own(folder: Folder, *options: str) -> tuple[dict[str, Any], bool]:
    """The document of `autoopt run`, and True if it imported the planner or the database."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AUTOOPT_HOME", "AUTOOPT_DB", "PREFECT"))}
    command = [sys.executable, "-c", PROGRAM, "run", "dag.json", "--json", "--quiet", *options]
    ended = subprocess.run(
        command, cwd=folder.path, env=env, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), ended.stderr == "True\n"


def test_the_same_command_imports_neither_planner_nor_database(folder: Folder) -> None:
    first, _ = run_in_process_of_its_own(folder, "--fresh")
    again, planned = run_in_process_of_its_own(folder)
    assert not planned
    assert again["reused"]
    assert again["run"] == first["run"]
    assert again["best"] == first["best"]
    assert again["pass_runs"]["executed"] == 0


def test_other_options_are_another_command(folder: Folder, run: Run) -> None:
    run()
    assert run("--seed", "7", "--out", "seeded")[1]
    assert run("--out", "elsewhere")[1]
    assert (folder.path / "elsewhere" / "model.onnx").is_file()
    assert not run("--out", "elsewhere")[1]
    assert not run()[1]


def append_space(path: Path) -> None:
    path.write_text(path.read_text() + " ")


def add_items(path: Path) -> None:
    """Make other data of the same kind."""
    shutil.copyfile(DIGITS / "calibration.npz", path)


def change_weight(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("dag.json", append_space),
        ("origin.onnx", lambda path: shutil.copyfile(DIGITS / "model.onnx", path)),
        ("origin.data", change_weight),
        ("helper.py", append_space),
        ("evaluation.npz", add_items),
        ("out/README.md", append_space),
        ("out/model.onnx", Path.unlink),
    ],
)
def test_a_changed_file_is_noticed(folder: Folder, run: Run, name: str, change: Callable[[Path], object]) -> None:
    run()
    file = folder.path / name
    content = file.read_bytes()
    change(file)
    assert run()[1]
    assert not run()[1]
    if name.startswith("out/"):
        assert file.read_bytes() == content
    file.write_bytes(content)
    assert run()[0]["best"]


def test_a_package_that_was_installed_is_noticed(folder: Folder, run: Run) -> None:
    run()
    (folder.library / "other-1.0.dist-info").mkdir()
    assert run()[1]
    assert not run()[1]


def test_a_search_that_another_process_has_begun_is_noticed(folder: Folder, run: Run) -> None:
    document, _ = run()
    with open_store(home=folder.path / ".autoopt") as store:
        finished = store.runs.get(document["run"])
        other = store.runs.create(replace(finished, id="", status="running", result=None, owner=None))
        assert run()[1]
        store.runs.finish(other.id, "cancelled")
    assert not run()[1]


def test_a_run_that_was_removed_answers_no_more(folder: Folder, run: Run) -> None:
    document, _ = run()
    for file in (folder.path / ".autoopt").glob("autoopt.db*"):
        file.unlink()
    shutil.rmtree(folder.path / ".autoopt" / "artifacts")
    again, planned = run()
    assert planned
    assert again["run"] != document["run"]
