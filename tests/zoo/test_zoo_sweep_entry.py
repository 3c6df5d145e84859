"""The entry of a model in a sweep, and its figures measured again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from builders import mlp, write
from simulation import Simulation, faster

from autoopt.engine.run.session import Session, search_inline
from autoopt.errors import SystemFailure
from autoopt.metrics import Constraint, Estimate
from autoopt.results import ModelResult, RunResult, SweepEntry
from autoopt.results.sweep import BROKEN
from autoopt.spec import load_dag
from autoopt.spec.zoo import load_zoo
from autoopt.store import SweepRecord, open_store
from autoopt.zoo.sweep_comparison import EarlierEntry
from autoopt.zoo.sweep_entry import EntryRunner, measure_again
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


TWO_CHAINS = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused"},
    "chains": [["fold"], ["clean"]],
}


class Night:
    """A finished run, and the next night on a machine of another speed."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.simulation = Simulation(folder, dag=TWO_CHAINS, **options)  # type: ignore[arg-type]
        self.simulation.pool.passes = {"identity_elimination": faster(0.5), "remove_unused": faster(0.8, size=500.0)}
        self.session: Session = self.simulation.session()
        with self.session:
            self.result: RunResult = self.session.execute(search_inline)

    def measure(self, last_best: ModelResult | None = None, occasion: str = "tonight") -> SweepEntry:
        entry = SweepEntry("m", "ok", result=self.result)
        return measure_again(self.session, entry, last_best, occasion=occasion)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_best_and_source_have_the_figures_of_tonight(night: Night) -> None:
    night.simulation.pool.noise = lambda model: 3.0 if model["passes"] else 1.0
    entry = night.measure()
    assert entry.best is not None
    assert entry.best.chain == night.result.best.chain
    assert entry.best.ratios["latency_p50"].value == pytest.approx(1.5)
    assert entry.best.measured.rounds >= 2
    assert entry.result.baseline.metrics["latency_p50"] == pytest.approx(10.0)


def test_measuring_twice_on_one_occasion_is_answered_from_the_store(night: Night) -> None:
    first = night.measure()
    calls = len(night.simulation.pool.measured)
    assert night.measure() == first
    assert len(night.simulation.pool.measured) == calls
    night.measure(occasion="tomorrow")
    assert len(night.simulation.pool.measured) > calls


def test_the_last_best_is_measured_if_it_is_another_model(night: Night) -> None:
    other = next(model for model in night.result.models if not model.is_source and model != night.result.best)
    entry = night.measure(replace(other, metrics={"old": 1.0}, chain="of last night"))
    assert entry.last_best.chain == "of last night"
    assert "old" not in entry.last_best.metrics
    assert entry.last_best.ratios["latency_p50"].value == pytest.approx(0.8)


def test_the_same_last_best_is_not_measured_twice(night: Night) -> None:
    assert night.measure(night.result.best).last_best is None


def test_a_last_best_without_its_artifact_is_left_out(night: Night) -> None:
    assert night.measure(ModelResult("f" * 64, chain="lost")).last_best is None


def test_a_best_model_that_now_breaks_a_constraint_is_named(tmp_path: Path) -> None:
    night = Night(tmp_path, constraints=(Constraint("latency_p50", max=9.0),))
    night.simulation.pool.noise = lambda model: 3.0
    entry = night.measure()
    assert entry.status == BROKEN
    assert entry.reason.startswith("the best model, measured again, breaks a constraint: latency_p50")


def test_without_a_best_model_the_source_is_measured(night: Night) -> None:
    night.result = replace(night.result, best=None)
    entry = night.measure()
    assert entry.best is None
    assert entry.result.baseline.metrics["latency_p50"] == pytest.approx(10.0)
