"""Runs over models that belong together: each is searched, all are judged together."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import model_sets
import numpy as np
import pytest
from builders import mlp, tensor, write
from builders import model as model_of
from kept_workers import keep_workers
from onnx import helper

import autoopt
from autoopt.api import execute
from autoopt.engine.parts.model_set import ModelSetRun
from autoopt.engine.prepare import prepare
from autoopt.engine.run.output_folder import recipe_in
from autoopt.engine.run.select import UNVERIFIED
from autoopt.engine.tools.stored_models import lineage_document
from autoopt.errors import InputError
from autoopt.observer import Observer
from autoopt.problem.goal import GoalOptions
from autoopt.problem.load import read
from autoopt.problem.run_request import RunRequest
from autoopt.report.run_view import RunView
from autoopt.results import RunResult
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.store import open_store

SHORT = {"seconds": 0.05, "replicas": 1, "target_width": 1.0, "rounds": 0, "new_tokens": 4}
DAG: dict[str, Any] = {
    "name": "t",
    "passes": {
        "tidy": "simplify",
        # Unsigned weights give the same results on all CPUs.
        "quant": {"pass": "dynamic_quantization", "params": {"weight_type": "QUInt8"}},
    },
    "chains": [["quant"], ["tidy"]],
    "objectives": [{"metric": "size"}],
    "constraints": [{"metric": "agreement", "min": 0.5}],
}


@pytest.fixture(scope="module", autouse=True)
def shared_by_all() -> Iterator[None]:
    """Have the runs that several tests look at share worker processes with the others."""
    with pytest.MonkeyPatch.context() as patch:
        keep_workers(patch)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store, the models and the results of the one run that most tests look at."""
    return tmp_path_factory.mktemp("model_sets")


@pytest.fixture(scope="module")
def models(place: Path) -> dict[str, str]:
    model_sets.write_texts(place)
    return model_sets.write_set(place / "models")


def run(place: Path, models: dict[str, str] | str, out: Path | None = None, **changes: Any) -> RunResult:
    dag = {**DAG, "model": models, "data": str(place / "texts.npz"), **changes}
    dag = {name: value for name, value in dag.items() if value is not None}
    return execute(RunRequest(dag=dag, home=place / "home", measurement=SHORT, out=out))


@pytest.fixture(scope="module")
def result(place: Path, models: dict[str, str]) -> RunResult:
    return run(place, models, place / "out")


def test_each_model_is_a_run_of_its_own_and_the_set_is_the_result(result: RunResult, place: Path) -> None:
    assert [part.name for part in result.parts] == ["encoder", "decoder", "decoder_with_past"]
    assert sum(part.share for part in result.parts) == pytest.approx(1)
    assert result.best.chain == "encoder: quant; decoder: quant; decoder_with_past: quant"
    size = sum(part.model.metrics["size"] for part in result.parts)
    assert result.best.metrics["size"] == size
    assert result.best.ratios["size"].value < 0.8
    assert 0.5 <= result.best.metrics["agreement"] <= 1
    with open_store(None, place / "home") as store:
        assert {record.id for record in store.runs.all(parent=result.run)} == {p.result.run for p in result.parts}
        assert store.runs.get("latest").id == result.run
    assert RunResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_an_archive_of_the_models_is_the_same_set(
    result: RunResult, place: Path, models: dict[str, str], tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        for name, path in models.items():
            archive.write(path, f"exported/{name}.onnx")
    repeated = run(place, str(tmp_path / "set.zip"))
    assert result.best is not None
    assert repeated.best is not None
    chosen = {part.name: part.model.artifact for part in result.parts}
    assert {part.name: part.model.artifact for part in repeated.parts} == chosen
    assert repeated.pass_runs.executed == 0


def test_the_package_holds_one_package_for_each_model_and_runs_without_autoopt(result: RunResult, place: Path) -> None:
    out = place / "out"
    files = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}
    assert {"model_set.json", "run.py", "model_set.py", "run_package.py", "README.md", "inputs.npz"} <= files
    assert {f"{part.name}/{name}" for part in result.parts for name in ("model.onnx", "recipe.json")} <= files
    without_autoopt = (
        "import runpy, sys; sys.modules['autoopt'] = None; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    start = f"import sys; sys.argv = [{str(out / 'run.py')!r}, '--seconds', '0.1']; {without_autoopt}"
    command = [sys.executable, "-c", start]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "output   logits: float32 [1, 5, 128]" in answer.stdout, answer.stderr
    assert "these models" in answer.stdout


def test_programs_use_the_package_with_and_without_autoopt(result: RunResult, place: Path) -> None:
    program = "import numpy as np; from run import load; print(load().generate(dict(np.load('inputs.npz')), 2).shape)"
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, cwd=place / "out", capture_output=True, text=True, check=False)
    assert answer.stdout == "(1, 2)\n", answer.stderr
    assert "session.generate" in (place / "out" / "README.md").read_text()
    session = autoopt.load(place / "out")
    with np.load(place / "out" / "inputs.npz") as arrays:
        outputs = session.run(None, dict(arrays))
    assert outputs[0].shape == (1, 5, model_sets.VOCABULARY)


def test_tables_answer_and_page_name_the_models(result: RunResult, place: Path) -> None:
    titles = [table.title for table in RunView(result).tables]
    assert titles[0].startswith("model encoder: ")
    assert titles[-1].startswith(f"together, run {result.run[:8]}")
    assert "smaller" in RunView(result).headline
    page = autoopt.load_run(result.run, home=place / "home").report(place / "report.html").read_text()
    assert all(f"Model {part.name}" in page for part in result.parts)


def test_an_identical_run_is_answered_from_the_store(result: RunResult, place: Path, models: dict[str, str]) -> None:
    again = run(place, models)
    assert again.reused
    assert again.run == result.run


class CancelBeforeTheLast(Observer):
    """Looks at the output folder before each model's search, and cancels the run before the last one."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.chains: list[str] = []
        self.notes: list[str] = []

    def on_phase(self, name: str) -> None:
        self.chains.append(recipe_in(self.out).get("chain", ""))
        if name.startswith("model decoder_with_past"):
            raise KeyboardInterrupt

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def test_the_set_of_the_best_models_so_far_is_written_during_the_run_and_after_a_cancel(
    result: RunResult, place: Path, models: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    watcher = CancelBeforeTheLast(out)
    dag = {**DAG, "model": models, "data": str(place / "texts.npz")}
    with pytest.raises(KeyboardInterrupt):
        execute(RunRequest(dag=dag, home=place / "home", measurement=SHORT, out=out, observer=watcher, again="all"))
    assert watcher.chains == [
        "",
        "encoder: quant; decoder: source; decoder_with_past: source",
        "encoder: quant; decoder: quant; decoder_with_past: source",
    ]
    assert any("the best models so far, which are not measured together yet" in note for note in watcher.notes)
    written = f"wrote the best models so far to {out}/, not measured together yet: encoder "
    assert any(note.startswith(written) for note in watcher.notes)
    assert "not measured together yet" in (out / "README.md").read_text()
    with np.load(out / "inputs.npz") as arrays:
        assert autoopt.load(out).run(None, dict(arrays))[0].shape == (1, 5, model_sets.VOCABULARY)


def test_a_model_that_breaks_the_limit_of_the_set_is_left_out(
    result: RunResult, place: Path, models: dict[str, str]
) -> None:
    strict = run(place, models, constraints=[*DAG["constraints"], {"metric": "max_abs_error", "max": 1e-6}])
    assert strict.best is not None
    assert all(part.model.chain != "quant" for part in strict.parts)
    assert sum("is not for the set: max_abs_error" in note for note in strict.notes) >= len(strict.parts)


def test_a_folder_of_models_is_a_set(place: Path, models: dict[str, str]) -> None:
    request = RunRequest(dag=str(place / "models"), data=str(place / "texts.npz"), home=place / "home")
    request = read(request)
    assert set(request.parts) == {"encoder", "decoder", "decoder_with_past"}
    assert RunRequest.from_json(request.to_json()).parts == request.parts
    assert RunRequest.from_json(request.to_json()).model is None


def test_a_dag_without_data_judges_the_models_on_generated_inputs(place: Path, models: dict[str, str]) -> None:
    result = run(place, models, place / "generated", data=None)
    assert result.best.ratios["size"].value < 0.8
    assert [note for note in result.notes if note.startswith("generated inputs: input_ids of 1x")]
    assert any(note.startswith("QUALITY IS A GUESS: no data") for note in result.notes)
    with np.load(place / "generated" / "inputs.npz") as arrays:
        assert arrays["input_ids"].shape == arrays["attention_mask"].shape
    for card in ("README.md", "decoder/README.md"):
        text = (place / "generated" / card).read_text()
        assert "`inputs.npz` holds generated inputs, because there was no data." in text
        assert "nothing here says how good the model is at its task" in text


def test_bare_models_without_data_are_replaced_by_lossless_ones_only(
    place: Path, models: dict[str, str], tmp_path: Path
) -> None:
    options = ProposalOptions(precision=None, level=2, threads="1")
    request = RunRequest(
        dag=models["encoder"],
        parts=models,
        home=tmp_path,
        measurement=SHORT,
        goal=GoalOptions("size"),
        search={"trials": 2},
        proposal_options=options,
    )
    result = execute(request)
    assert any(note.startswith("no data: only lossless models are chosen") for note in result.notes)
    lossy = [part.name for part in result.parts if part.result.best_lossy is not None]
    assert lossy
    for name in lossy:
        assert any(note.startswith(f"{name}: best lossy model, unverified: ") for note in result.notes)
    for part in result.parts:
        assert UNVERIFIED not in part.model.flags


PIPELINE = """
import numpy as np

def both(models, inputs):
    first = models["first"]({"x": inputs["x"]})["y"]
    return {"end": models["second"]({"x": np.concatenate([first, first], axis=1)})["y"]}

def wrong(models, inputs):
    return 1

def broken(models, inputs):
    return models["first"](inputs)["z"]
"""


@pytest.fixture(scope="module")
def script(place: Path) -> dict[str, Any]:
    """Two models with steps between them, which a function of a script does."""
    (place / "both.py").write_text(PIPELINE)
    np.savez(place / "x.npz", x=np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32))
    pair = {name: str(write(mlp(width=128, seed=seed), place / name)) for seed, name in enumerate(("first", "second"))}
    return {"model": pair, "data": str(place / "x.npz"), "user_script": str(place / "both.py"), "pipeline": "both"}


def test_a_function_of_a_script_may_run_the_models(place: Path, script: dict[str, Any]) -> None:
    result = run(place, {}, place / "piped", **script)
    assert [part.name for part in result.parts] == ["first", "second"]
    assert result.best.chain == "first: quant; second: quant"
    command = [sys.executable, str(place / "piped" / "run.py"), "--seconds", "0.1"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "output   end: float32 [1, 4]" in answer.stdout, answer.stderr
    assert "these models" in answer.stdout
    with pytest.raises(InputError, match="the models run in a script"):
        autoopt.load(place / "piped")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pipeline": "none"}, "no function 'none'"),
        ({"pipeline": "wrong"}, "wrong returns int, not a dict of arrays"),
        ({"pipeline": "broken"}, r"both.py:12: broken raised KeyError: 'z'$"),
        ({"data": None}, "pipeline: a function of a script needs data to run on"),
        ({"user_script": None}, "pipeline: is a function of the user script"),
        ({"connections": {"second.x": "first.y"}}, "connections: pipeline says how the models connect"),
    ],
)
def test_a_wrong_pipeline_is_named(place: Path, script: dict[str, Any], changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        run(place, {}, **{**script, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"connections": {"decoder.nothing": "encoder.last_hidden_state"}},
            r"dag.yaml:\d+: connections.decoder.nothing: no input",
        ),
        ({"model": {"encoder": "models/encoder_model.onnx"}}, r"dag.yaml:\d+: model: names one model"),
        (
            {"model": {"a": "models/encoder_model.onnx", "b": "models/encoder_model.onnx"}},
            r"dag.yaml:\d+: model.a: 'a' takes nothing",
        ),
        (
            {"model": {"a": "models/encoder_model.onnx", "b": "none.onnx"}},
            r"dag.yaml:\d+: model.b: no such file: none.onnx",
        ),
        (
            {"model": {"a.b": "models/encoder_model.onnx", "c": "none.onnx"}},
            r"dag.yaml:\d+: model.a.b: 'a.b' has a dot",
        ),
        (
            {"data": "few.npz"},
            r"few.npz: data: no array 'attention_mask' for encoder.attention_mask; the data has: input_ids",
        ),
    ],
)
def test_mistakes_are_one_line_with_their_place(
    place: Path, models: dict[str, str], changes: dict[str, Any], reason: str
) -> None:
    np.savez(place / "few.npz", input_ids=model_sets.TEXTS, other=model_sets.TEXTS)
    dag = {**DAG, "model": models, "data": "texts.npz", **changes}
    file = place / "dag.yaml"
    file.write_text("\n".join(f"{name}: {json.dumps(value)}" for name, value in dag.items() if value is not None))
    with pytest.raises(InputError, match=reason) as caught:
        execute(RunRequest(dag=str(file), home=place / "home", measurement=SHORT))
    assert "\n" not in str(caught.value)


THREE = """\
import numpy as np

from autoopt.data import register_post_process


@register_post_process("three")
def three(outputs):
    return np.array(3)
"""


def test_the_datas_post_process_turns_outputs_of_the_set_into_predictions(
    place: Path, models: dict[str, str], tmp_path: Path
) -> None:
    texts = dict(np.load(place / "texts.npz"))
    items = len(next(iter(texts.values())))
    np.savez(tmp_path / "labelled.npz", **texts, labels=np.full(items, 3))
    (tmp_path / "script.py").write_text(THREE)
    data = {"path": str(tmp_path / "labelled.npz"), "post_process": "three"}
    judged = [{"metric": "accuracy", "min": 0.9}]
    script = str(tmp_path / "script.py")
    result = run(place, models, data={"evaluation": data}, user_script=script, constraints=judged)
    assert result.baseline.metrics["accuracy"] == 1


def test_a_set_says_that_it_feeds_no_state_back(tmp_path: Path) -> None:
    cell = [helper.make_node("Add", ["x", "h"], ["sum"]), helper.make_node("Tanh", ["sum"], ["next"])]
    ends = [helper.make_node("Neg", ["sum"], ["y"])]
    states, total = [tensor("x", [1, 3]), tensor("h", [1, 3])], tensor("sum", [1, 3])
    parts = {
        "cell": str(write(model_of(cell, states, [total, tensor("next", [1, 3])], {}), tmp_path / "cell")),
        "end": str(write(model_of(ends, [total], [tensor("y", [1, 3])], {}), tmp_path / "end")),
    }
    x = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)
    h = np.zeros((12, 3), np.float32)
    for index in range(11):
        h[index + 1] = np.tanh(x[index] + h[index])
    np.savez(tmp_path / "items.npz", x=x, h=h)
    data = str(tmp_path / "items.npz")
    request = RunRequest(dag=parts["cell"], parts=parts, data=data, home=tmp_path / "home", measurement=SHORT)
    with prepare(request) as prepared:
        assert isinstance(prepared, ModelSetRun)
        (note,) = [note for note in map(str, prepared.notes) if "items follow each other" in note]
    assert note.startswith("cell: items follow each other, but the whole set is measured with the states in the data; ")
    assert "'autoopt init MODEL --data FILE' writes" in note


def test_the_models_of_a_set_are_searched_on_each_target(tmp_path: Path) -> None:
    targets = [{"name": "one", "threads": 1}, {"name": "two", "threads": 2}]
    asked = {"targets": targets, "objectives": [{"metric": "latency_p50"}]}
    dag = model_sets.write_pair(tmp_path, **asked, passes={"quant": "dynamic_quantization"}, chains=[["quant"]])
    request, models = RunRequest(dag=str(dag), home=tmp_path / "home", out=tmp_path / "out"), {"first", "second"}
    found = execute(request)
    assert [target.name for target in found.targets] == ["one", "two"]
    for target in found.targets:
        assert {part.name for part in target.result.parts} == models
        assert (tmp_path / "out" / "targets" / target.name / "model_set.json").is_file()
    assert found.choice is not None
    assert found.choice.name in ("one", "two")
    assert (tmp_path / "out" / "model_set.json").is_file()
    with open_store(None, tmp_path / "home") as store:
        sets = {each.id for each in store.runs.all(parent=found.run)}
        assert sets == {target.result.run for target in found.targets}
        for each in sets:
            assert len(list(store.runs.all(parent=each))) == len(models)
        for target in (None, "two"):
            assert set(lineage_document(store, found.run, target)["models"]) == models
    assert RunResult.from_json(json.loads(json.dumps(found.to_json()))).to_json() == found.to_json()
    assert execute(request).reused
