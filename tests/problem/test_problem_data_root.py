"""Where relative paths of data start from: the file's folder, or `data_root`; the content alone counts."""

from __future__ import annotations

from pathlib import Path

import builders
import pytest

from autoopt.engine.tools.apply import PassSettings, apply_pass
from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.problem.content_keys import PassRunInput, pass_run_key
from autoopt.problem.load import read
from autoopt.problem.run_request import RunRequest
from autoopt.registry import registry
from autoopt.spec import load_dag
from autoopt.target import Accelerator
from autoopt.zoo.zoo_models import check_zoo

DAG = {
    "name": "d",
    "data": {"evaluation": "e.npz", "calibration": {"path": "c.npz", "limit": 2}},
    "passes": {"s": "simplify"},
    "chains": [["s"]],
}
SCRIPT = """
from typing import Annotated
from autoopt import Param, Pass, register

@register("noted")
class Noted(Pass):
    "Writes down what a file says."
    text: Annotated[str, Param("data"), "a file"] = "note.txt"

    def run(self, model):
        model.producer_name = open(self.text).read()
        model.graph.node[0].name = model.producer_name
        return model
    touches = ("names",)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("e.npz", "c.npz"):
        (folder / name).write_bytes(b"content")
    return folder


def test_data_of_a_dag_start_from_the_root(data: Path) -> None:
    spec = load_dag(DAG).with_data_root(str(data))
    assert spec.data_json("evaluation") == str(data / "e.npz")
    assert spec.data_json("calibration") == {"path": str(data / "c.npz"), "limit": 2}
    spec.check_files()
    assert load_dag(DAG).with_data_root("s3://bucket/x/").data_json("evaluation") == "s3://bucket/x/e.npz"
    with pytest.raises(InputError, match="no such file: e"):
        load_dag(DAG).check_files()


def test_data_of_a_zoo_start_from_the_root(data: Path, tmp_path: Path) -> None:
    model = builders.write(builders.mlp(), tmp_path)
    zoo = {
        "name": "z",
        "models": [{"path": str(model), "data": {"evaluation": "e.npz"}}],
        "dag": str(tmp_path / "d.json"),
    }
    (tmp_path / "d.json").write_text('{"name": "d", "passes": {"s": "simplify"}, "chains": [["s"]], "data": "c.npz"}')
    check_zoo(zoo, data_root=str(data))
    with pytest.raises(InputError, match="no such file"):
        check_zoo(zoo)


def test_a_run_remembers_the_root_for_its_resume(data: Path) -> None:
    again = RunRequest.from_json(read(RunRequest(dag=DAG, data_root=data)).to_json())
    assert again.data_root == str(data)


def test_a_data_parameter_starts_from_the_root(data: Path, tmp_path: Path) -> None:
    (data / "note.txt").write_text("told")
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    model = builders.write(builders.mlp(), tmp_path)
    options = PassSettings(user_script=str(script), data_root=data)
    step = apply_pass("noted", model, tmp_path / "out", options=options).step
    assert step.outcome is Outcome.OK
    assert step.params == {"text": "note.txt"}


def test_where_a_file_lies_is_no_part_of_the_key() -> None:
    info = registry().info("merge")

    def key(path: str, digest: str) -> str:
        params = {"second": path}
        return pass_run_key(info, params, PassRunInput(Candidate("a"), Accelerator(), files={"second": digest}))

    assert key("/here/m.onnx", "1") == key("/there/m.onnx", "1") != key("/here/m.onnx", "2")
