"""The entry of one model in a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from builders import mlp, write

from autoopt.engine.run.session import Session, search_inline
from autoopt.errors import SystemFailure
from autoopt.metrics import Estimate
from autoopt.results import RunResult, SweepEntry
from autoopt.spec import load_dag
from autoopt.spec.zoo import load_zoo
from autoopt.store import SweepRecord, open_store
from autoopt.zoo.sweep_comparison import EarlierEntry
from autoopt.zoo.sweep_entry import EntryRunner
from autoopt.zoo.sweep_request import SweepRequest
from autoopt.zoo.zoo_models import ZooItem, items

DAG = {
    "name": "d",
    "passes": {"tidy": "simplify"},
    "chains": [["tidy"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


def run(
    folder: Path,
    item: ZooItem,
    search: object = search_inline,
    *earlier: SweepEntry,
    accept: bool = False,
    dag: Mapping[str, object] = DAG,
) -> SweepEntry:
    request = SweepRequest(zoo={}, home=folder / "store", out=folder / "out", accept=accept)
    with open_store(home=folder / "store") as store:
        sweep = store.sweeps.create(SweepRecord(id="", name="z")).id
    return EntryRunner(request, search, sweep, sweep).run(item, load_dag(dag), [EarlierEntry("s", e) for e in earlier])  # type: ignore[arg-type]


def item_of(folder: Path, path: Path) -> ZooItem:
    zoo = load_zoo({"name": "z", "models": [{"path": str(path), "tags": ["cnn"]}]})
    return items(zoo, folder)[0]


def test_a_model_that_runs_has_its_result_its_inputs_and_its_files(tmp_path: Path) -> None:
    entry = run(tmp_path, item_of(tmp_path, write(mlp(), tmp_path / "mlp")))
    assert (entry.name, entry.status, entry.tags, entry.reason) == ("mlp", "ok", ("cnn",), "")
    assert entry.result.front == ()
    assert set(entry.inputs) >= {"model", "DAG", "evaluation data"}
    assert entry.inputs["user script"] == "none"
    assert "libraries" in entry.environment
    assert entry.seconds > 0
    assert (tmp_path / "out" / "mlp" / "model.onnx").is_file()


def test_a_regressed_model_does_not_replace_the_good_one(tmp_path: Path) -> None:
    item = item_of(tmp_path, write(mlp(), tmp_path / "mlp"))
    first = run(tmp_path, item)
    assert first.result is not None
    assert first.best is not None
    tiny = replace(first.best, ratios={"size": Estimate.exact(0.001)})
    better = replace(first, result=replace(first.result, best=tiny))
    exported = tmp_path / "out" / "mlp" / "model.onnx"
    exported.write_bytes(b"the released model")
    entry = run(tmp_path, item, search_inline, better)
    assert entry.compared.verdict == "worse"
    assert exported.read_bytes() == b"the released model"
    run(tmp_path, item, search_inline, better, accept=True)
    assert exported.read_bytes() != b"the released model"


def test_a_source_model_in_the_output_folder_is_not_replaced(tmp_path: Path) -> None:
    source = write(mlp(), tmp_path / "out" / "mlp")
    content = source.read_bytes()
    entry = run(tmp_path, item_of(tmp_path, source))
    assert (entry.name, entry.status) == ("mlp", "refused")
    assert "has files of yours that the results would replace (model.onnx)" in entry.reason
    assert source.read_bytes() == content


def test_a_model_whose_pass_always_fails_names_the_run_that_tells_why(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "from autoopt import register\n\n@register('broken')\ndef broken(model):\n"
        '    """Fails."""\n    return model.nothing\n'
    )
    dag = {**DAG, "passes": {"tidy": "broken"}, "user_script": str(tmp_path / "user.py")}
    entry = run(tmp_path, item_of(tmp_path, write(mlp(), tmp_path / "mlp")), dag=dag)
    assert (entry.status, entry.run) == ("refused", "")
    assert "your pass fails in every trial" in entry.reason
    with open_store(home=tmp_path / "store") as store:
        assert store.runs.get(entry.failed_run).status == "failed"
    document = entry.to_json()
    assert document["run"] == entry.failed_run
    assert SweepEntry.from_json(document) == entry


def test_a_failure_of_the_system_is_not_the_models_fault(tmp_path: Path) -> None:
    def fail(session: Session) -> RunResult:
        raise SystemFailure("the server is gone")

    entry = run(tmp_path, item_of(tmp_path, write(mlp(), tmp_path / "mlp")), fail)
    assert (entry.status, entry.reason) == ("failed", "the server is gone")
