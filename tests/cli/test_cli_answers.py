"""`autoopt run` again: the store answers while all that the result follows from is the same."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a DAG and its files."""
    path = tmp_path_factory.mktemp("answers")
    for name in FILES:
        shutil.copyfile(DIGITS / name, path / name)
    (path / "script.py").write_text(SCRIPT)
    (path / "helper.py").write_text("VALUE = 1\n")
    origin = onnx.load(DIGITS / "model.onnx")
    onnx.save(origin, path / "origin.onnx", save_as_external_data=True, location="origin.data", size_threshold=0)
    (path / "dag.json").write_text(json.dumps(DAG))
    return path


@pytest.fixture
def reused(folder: Path, home: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return `reused("--set", "search.seed=7")`, which runs the DAG and tells if the store answered."""
    monkeypatch.chdir(folder)

    def run(*options: str) -> bool:
        document = json.loads(call("run", "dag.json", "--json", "--quiet", *options).out)
        assert document["pass_runs"]["executed"] == 0 or not document["reused"]
        return bool(document["reused"])

    return run


def test_other_options_are_another_search(folder: Path, reused: Callable[..., bool]) -> None:
    reused()
    assert not reused("--set", "search.seed=7", "--out", "seeded")
    assert reused("--out", "elsewhere")
    assert (folder / "elsewhere" / "model.onnx").is_file()
    assert reused()


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
        ("origin.onnx", lambda path: shutil.copyfile(DIGITS / "model.onnx", path)),
        ("origin.data", change_weight),
        ("helper.py", append_space),
        ("evaluation.npz", add_items),
    ],
)
def test_a_changed_file_is_noticed(
    folder: Path, reused: Callable[..., bool], name: str, change: Callable[[Path], object]
) -> None:
    reused()
    file = folder / name
    content = file.read_bytes()
    change(file)
    assert not reused()
    assert reused()
    file.write_bytes(content)
    assert reused()


@pytest.mark.parametrize("change", [append_space, Path.unlink])
def test_an_answer_writes_the_package_again(
    folder: Path, reused: Callable[..., bool], change: Callable[[Path], object]
) -> None:
    reused()
    file = folder / "out" / "README.md"
    content = file.read_bytes()
    change(file)
    assert reused()
    assert file.read_bytes() == content


def test_the_time_of_a_file_and_the_spaces_in_a_dag_do_not_count(folder: Path, reused: Callable[..., bool]) -> None:
    reused()
    append_space(folder / "dag.json")
    for name in ("model.onnx", "evaluation.npz", "script.py"):
        os.utime(folder / name, (1, 1))
    assert reused()
