"""Run requests as JSON: for other processes, other folders and other versions, without secrets."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from autoopt.errors import ConfigError
from autoopt.problem.load import read, spec_of
from autoopt.problem.problem import Limits
from autoopt.problem.run_request import RunRequest, model_name
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import ProposalOptions

DAG = "name: d\npasses: {a: name_fix}\nchains: [[a]]\nmodel: model.onnx\n"


@pytest.fixture
def dag(tmp_path: Path) -> Path:
    file = tmp_path / "dag.yaml"
    file.write_text(DAG)
    return file


def stored(request: RunRequest) -> dict[str, object]:
    document: dict[str, object] = json.loads(json.dumps(read(request).to_json()))
    return document


def test_a_request_survives_json(dag: Path) -> None:
    request = RunRequest(
        dag=dag, workers=3, search={"trials": 5}, limits=Limits(pass_seconds=9.0), measurement={"seconds": 1}
    )
    again = RunRequest.from_json(stored(request))
    assert (again.workers, again.search, again.measurement) == (3, {"trials": 5}, {"seconds": 1})
    assert again.limits == Limits(pass_seconds=9.0)
    assert spec_of(again).passes.keys() == {"a"}


def test_paths_become_absolute(dag: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dag.parent)
    document = stored(RunRequest(dag="dag.yaml", data={"path": "d.npz"}))
    assert document["dag_file"] == str(dag)
    assert document["model"] == str(dag.parent / "model.onnx")
    assert document["data"]["path"] == str(dag.parent / "d.npz")  # type: ignore[index]


def test_a_read_request_follows_changes_of_the_file_only_if_it_is_read_again(dag: Path) -> None:
    request = read(RunRequest(dag=dag))
    document = stored(request)
    dag.write_text(DAG.replace("name_fix", "remove_unused"))
    assert isinstance(request.dag, DagSpec)
    assert spec_of(RunRequest.from_json(document)).passes["a"].pass_name == "name_fix"
    assert spec_of(RunRequest.from_json(document, reread=True)).passes["a"].pass_name == "remove_unused"
    dag.unlink()
    assert spec_of(RunRequest.from_json(document, reread=True)).passes["a"].pass_name == "name_fix"


def test_errors_of_a_stored_dag_name_its_file_and_line(dag: Path) -> None:
    dag.write_text(DAG + "user_script: gone.py\n")
    again = RunRequest.from_json(stored(RunRequest(dag=dag)))
    dag.unlink()
    with pytest.raises(ConfigError) as error:
        spec_of(again).check_files(model=False)
    assert (error.value.file, error.value.line) == (str(dag), 5)


def test_secrets_of_urls_are_not_stored(dag: Path, tmp_path: Path) -> None:
    url = "https://user:pa55word@host/model.onnx"
    data = {"path": "https://host/d.npz?X-Amz-Signature=pa55word"}
    text = json.dumps(stored(RunRequest(dag=dag, model=url, data=data, home=tmp_path)))
    assert "pa55word" not in text


def test_secrets_in_parameters_of_passes_are_not_stored(tmp_path: Path) -> None:
    """Plans, pass runs and recipes hold parameters, so files take the place of such addresses before planning."""
    (tmp_path / "values.npz").write_bytes(b"values")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/values.npz?key=pa55word"
        dag = {"name": "d", "passes": {"a": {"pass": "name_fix", "params": {"x": [url]}}}, "chains": [["a"]]}
        request = RunRequest(dag=dag, home=tmp_path / "home")
        spec = spec_of(request)
        server.shutdown()
    text = json.dumps(stored(request))
    assert "pa55word" not in text + repr(spec.passes)
    (path,) = spec.passes["a"].params["x"]
    assert Path(path).read_bytes() == b"values"
    again = spec_of(replace(RunRequest.from_json(json.loads(text)), home=tmp_path / "home"))
    assert again.passes["a"].params == spec.passes["a"].params


def test_a_bare_model_keeps_its_options(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"")
    request = RunRequest(dag=str(model), proposal_options=ProposalOptions(precision="int8", level=2))
    document = stored(request)
    assert document["dag"] == str(model)
    assert document["proposal_options"] == {"precision": "int8", "level": 2}
    assert RunRequest.from_json(document).proposal_options == request.proposal_options


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/models/resnet.onnx", "resnet.onnx"),
        ("/models/resnet/model.onnx", "resnet"),
        ("https://user:secret@host/zoo/bert/model.onnx?key=secret", "bert"),
        ("https://host/bert.onnx?key=secret", "bert.onnx"),
    ],
)
def test_a_model_is_named_by_its_file_or_folder(model: str, name: str) -> None:
    assert model_name(model) == name
