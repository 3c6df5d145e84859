"""The Python API: one run, resumed runs, plain functions as listeners."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import mlp, tensor, write
from builders import model as make_model
from onnx import helper, numpy_helper

import autoopt
from autoopt import api
from autoopt.errors import InputError
from autoopt.observer import Observer
from autoopt.problem.goal import GoalOptions
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult
from autoopt.settings import settings
from autoopt.store import open_store

DAG = {
    "name": "t",
    "passes": {"tidy": {"pass": "simplify"}},
    "chains": [["tidy"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


pytestmark = pytest.mark.usefixtures("kept_workers")


class Stop(Observer):
    """Interrupts the run after its first trial."""

    def on_trial_end(self, *_: object) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    settings.cache_clear()
    return write(mlp(width=64), tmp_path / "mlp")


def test_a_run_leaves_its_best_model_and_tells_plain_functions(model: Path, tmp_path: Path) -> None:
    events: list[str] = []

    def listener(event: str, **values: Any) -> None:
        events.append(event)

    result = autoopt.run(DAG, model=model, out=tmp_path / "out", listener=listener)
    assert result.best.path == str(tmp_path / "out" / "model.onnx")
    assert {"search_begins", "baseline", "trial_begins", "pass_begins", "measure_ends", "trial_ends"} <= set(events)


def test_a_mended_model_is_found_by_its_own_file(model: Path, tmp_path: Path) -> None:
    faulty = mlp(width=64)
    for node in faulty.graph.node:
        node.name = "same"
    file = write(faulty, tmp_path / "faulty")
    autoopt.run(DAG, model=file, out=tmp_path / "out")
    recorded = json.loads((tmp_path / "out" / "recipe.json").read_text())["source_files"]
    assert {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} in recorded


def test_without_a_folder_nothing_is_written(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = autoopt.run(DAG, model=model, out=None)
    assert result.best.chain
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file, not a folder for results"):
        autoopt.run(DAG, model=model, out=tmp_path / "file")
    assert not (tmp_path / "home").exists()


def test_interrupted_runs_are_resumed(model: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        autoopt.run(DAG, model=model, out=None, observer=Stop())
    with open_store(home=tmp_path / "home") as store:
        (run,) = store.runs.all()
    assert autoopt.resume() == []  # it was cancelled, and so is resumed only by its id
    (result,) = autoopt.resume(run.id[:6])
    assert result.run == run.id
    assert result.status == "finished"


def test_a_resumed_run_writes_where_it_was_to_write(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        autoopt.run(DAG, model=model, out="results", observer=Stop())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (result,) = autoopt.resume("latest")
    assert result.out == tmp_path / "results"
    assert (tmp_path / "results" / "recipe.json").is_file()
    assert not list(Path.cwd().iterdir())


def test_all_interrupted_runs_write_into_folders_of_their_own(model: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        autoopt.run(DAG, model=model, out=tmp_path / "same", observer=Stop())
    with open_store(home=tmp_path / "home") as store:
        (cancelled,) = store.runs.all()
        dead = [store.runs.create(dataclasses.replace(cancelled, id="", status="running")).id for _ in range(2)]
    runs = autoopt.resume(out=tmp_path / "all")
    assert sorted(run.run for run in runs) == sorted(dead)
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == sorted(dead)


def test_a_finished_run_is_not_resumed(model: Path) -> None:
    run = autoopt.run(DAG, model=model, out=None).run
    with pytest.raises(InputError, match=f"run {run} has finished; 'autoopt runs {run}' shows its result"):
        autoopt.resume(run)


def test_an_unknown_run_is_the_users_error(model: Path) -> None:
    with pytest.raises(InputError, match="nosuchrun"):
        api.resume("nosuchrun")


def test_a_run_in_memory_gives_tables_charts_and_a_session(model: Path, tmp_path: Path) -> None:
    inputs = {"x": np.zeros((4, 8), np.float32)}
    dag = {**DAG, "passes": {"tidy": {"pass": "dynamic_quantization"}}, "objectives": [{"metric": "throughput"}]}
    result = autoopt.run(dag, model=mlp(width=512), data=inputs, out=None, trials=1, minimize="size")
    assert isinstance(result, RunResult)
    assert list(result.trials.columns[:4]) == ["trial", "chain", "outcome", "feasible"]
    assert result.trials["size_ratio"][0] < 1
    assert list(result.pareto["model"]) == ["source", "best"]
    assert result.best.session().run(None, inputs)[0].shape == (4, 4)
    assert "smaller" in result._repr_html_()
    assert result.report(tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert autoopt.load_run() == result
    assert [row.run for row in autoopt.runs()] == [result.run]
    assert result.run[:8] in autoopt.runs()._repr_html_()
    with pytest.raises(InputError, match="no trial has size and peak_memory"):
        result.plot_pareto("peak_memory")
    again = autoopt.run(dag, model=mlp(width=512), data=dict(inputs), out=None, trials=1, minimize="size")
    assert (again.run, again.reused) == (result.run, True), "equal models and data are the same run"


def test_trials_over_several_targets_say_whose_they_are(model: Path) -> None:
    targets = [{"name": name, "threads": threads} for name, threads in (("one", 1), ("two", 2))]
    result = autoopt.run({**DAG, "targets": targets}, model=model, out=None)
    assert result.trials[["target", "trial", "chain"]].values.tolist() == [["one", 0, "tidy"], ["two", 0, "tidy"]]


def test_columns_of_a_data_frame_are_chosen_by_name(model: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 8)), columns=[f"f{i}" for i in range(8)])
    frame["species"] = ["cat", "dog", "ant", "bee"] * 10
    frame["id"] = range(40)
    limited = {**DAG, "constraints": [{"metric": "accuracy", "max_drop": 1.0}]}
    inputs = [f"f{i}" for i in range(8)]
    result = autoopt.run(limited, model=model, data=frame, label="species", inputs=inputs, out=None)
    assert "accuracy" in result.best.metrics


def test_a_wrong_option_is_answered_in_the_functions_own_words(model: Path) -> None:
    with pytest.raises(TypeError, match=r"run\(\) has no option 'trails'; did you mean 'trials'\?"):
        autoopt.run(DAG, trails=3)
    with pytest.raises(TypeError, match="it takes again, calibration, classes, data_root"):
        autoopt.run(DAG, zzz=3)
    with pytest.raises(InputError, match="minimize is latency, size, memory, not 'speed'"):
        autoopt.run(DAG, model=model, minimize="speed")  # type: ignore[typeddict-item]


def test_errors_name_arguments_and_not_options(model: Path) -> None:
    for said, options in {
        "classes: needs data": {"classes": ["a"]},
        "max_drop: must not be negative": {
            "data": {"x": np.zeros((4, 8), np.float32), "labels": [0] * 4},
            "max_drop": -1,
        },
    }.items():
        with pytest.raises(InputError, match=f"^{said}"):
            autoopt.run(model, out=None, **options)  # type: ignore[arg-type]


def test_notes_name_arguments_and_not_options(model: Path) -> None:
    data = {"x": np.random.default_rng(0).random((64, 8), np.float32), "labels": np.arange(64) % 3}
    notes = autoopt.run(model, data=data, out=None, trials=1).notes
    assert any("max_drop" in note for note in notes)
    assert "--" not in " ".join(notes)


def test_where_nothing_meets_the_constraints_the_best_model_is_the_source(model: Path) -> None:
    result = autoopt.run({**DAG, "constraints": [{"metric": "size", "max": 1}]}, model=model, out=None)
    assert (result.status, result.best.chain) == ("nothing meets the constraints", "source")
    assert result.to_json()["best"] is None
    assert result.best.session().run(None, {"x": np.zeros((4, 8), np.float32)})


def test_options_are_those_of_a_request() -> None:
    fields = {field.name for field in dataclasses.fields(RunRequest)}
    own = {*api.SEARCH_OPTIONS, *api.GOAL_OPTIONS, *api.READING_OPTIONS}
    arguments = {"dag", "model", "data", "out"}
    set_by_autoopt = {
        "fields",
        "is_retry",
        "began",
        "candidates",
        "dag_file",
        "data_is_generated",
        "ending",
        "in_pool",
        "is_draft",
        "name",
        "parent",
        "pool",
        "resume",
        "set_has_data",
        "sweep",
        "until",
    }
    assert set(api.RunOptions.__annotations__) - own == fields - arguments - set_by_autoopt


def test_in_a_notebook_progress_is_shown(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    autoopt.run(DAG, model=model, out=None)
    assert "source model: size" in capsys.readouterr().out


def test_the_size_of_generated_images_is_an_option(model: Path, tmp_path: Path) -> None:
    image = tensor("image", ["n", 3, "height", "width"])
    pooled = make_model(
        [helper.make_node("GlobalAveragePool", ["image"], ["y"])], [image], [tensor("y", ["n", 3, 1, 1])], {}
    )
    path = write(pooled, tmp_path / "pool")
    result = autoopt.run(str(path), image_size=(24, 40), out=None, search={"trials": 1})
    with open_store() as store:
        assert store.runs.get(result.result.run).settings["request"]["measurement"]["image_size"] == [24, 40]


def test_a_lossless_model_of_another_run_is_chosen_although_no_chain_here_made_it(model: Path, tmp_path: Path) -> None:
    """Without data, lossy models are only shown; whether one is lossy, its own passes say."""
    wasteful = mlp(width=64)
    wasteful.graph.initializer.append(numpy_helper.from_array(np.ones(4096, np.float32), "unread"))
    path = write(wasteful, tmp_path / "wasteful")
    dag = {**DAG, "passes": {"smaller": {"pass": "remove_unused"}}, "chains": [["smaller"]]}
    made = autoopt.run(dag, model=path, out=None)
    request = RunRequest(
        str(path), goal=GoalOptions(minimize="size"), candidates=(f"{made.result.run}:{made.result.best.trial}",)
    )
    assert api.execute(request).best.chain == "smaller"
