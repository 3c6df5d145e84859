"""Requests for sweeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.sweeps.request import SweepRequest
from autoopt.engine.sweeps.zoo import ZooItem, dag_of
from autoopt.errors import InputError
from autoopt.observer import Observer
from autoopt.spec import load_dag
from autoopt.spec.zoo import load_zoo
from autoopt.store import SweepRecord

DAG = {"name": "d", "passes": {"tidy": "simplify"}, "chains": [["tidy"]]}


def record(**settings: object) -> SweepRecord:
    return SweepRecord(id="s", name="z", settings={"dag": None, "only": None, "nightly": False, **settings})


def test_a_resumed_sweep_has_the_settings_that_it_was_started_with() -> None:
    request = SweepRequest(zoo={}, resume=True).resuming(record(only="cnn", nightly=True))
    assert (request.only, request.nightly, request.dag) == ("cnn", True, None)


def test_the_same_setting_may_be_stated_again() -> None:
    assert SweepRequest(zoo={}, only="cnn", resume=True).resuming(record(only="cnn")).only == "cnn"


@pytest.mark.parametrize(
    ("settings", "reason"), [({}, "was started without it"), ({"only": "rnn"}, "was started with rnn")]
)
def test_another_setting_is_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=f"--only: the interrupted sweep {reason}; omit this option to resume"):
        SweepRequest(zoo={}, only="cnn", resume=True).resuming(record(**settings))


def test_the_settings_of_a_request_survive_its_record() -> None:
    request = SweepRequest(zoo={}, dag="d.yaml", only="cnn", nightly=True, accept=True)
    assert SweepRequest(zoo={}).resuming(record(**request.settings())) == request


def test_the_run_of_a_model_takes_over_the_request(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    zoo = load_zoo({"name": "z", "models": [{"path": str(tmp_path / "m.onnx"), "search": {"trials": 2, "seed": 1}}]})
    (entry,) = zoo.entries()
    observer, spec = Observer(), load_dag(DAG)
    request = SweepRequest(zoo=zoo, home=tmp_path, workers=3, search={"trials": 5}, observer=observer)
    run = request.run_request("s1", ZooItem(entry.name, entry.path, entry), spec)
    assert (run.dag, run.model, run.home, run.workers, run.sweep) == (spec, entry.path, tmp_path, 3, "s1")
    assert run.search == {"trials": 5, "seed": 1}  # the request overrides the zoo's line
    assert run.observer is observer


def test_the_run_of_a_model_without_a_dag_proposes_one(tmp_path: Path) -> None:
    for name in ("m.onnx", "m.pt"):
        (tmp_path / name).touch()
    paths = [{"path": str(tmp_path / "m.onnx")}, {"path": str(tmp_path / "m.pt")}]
    zoo = load_zoo({"name": "z", "models": paths, "constraints": [{"metric": "size", "max_ratio": 0.5}]})
    onnx_item, torch_item = (ZooItem(entry.name, entry.path, entry) for entry in zoo.entries())
    request = SweepRequest(zoo=zoo, home=tmp_path)
    run = request.run_request("s1", onnx_item, dag_of(zoo, onnx_item, None))
    assert (run.dag, run.model, run.data) == (onnx_item.path, None, None)
    assert RunRequest.from_json(json.loads(json.dumps(run.to_json()))).goal == run.goal
    with pytest.raises(InputError, match="no DAG is named, and none can be proposed for such a file; write dag:"):
        request.run_request("s1", torch_item, dag_of(zoo, torch_item, None))
