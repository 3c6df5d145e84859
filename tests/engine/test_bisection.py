"""Bisection: what changed, environments, the search for the cause, and real models in two processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from builders import mlp, write
from wheels import write_wheel

from autoopt.engine.sweeps.bisection.bisect import CauseSearch, bisect
from autoopt.engine.sweeps.bisection.environments import Environments
from autoopt.engine.sweeps.bisection.factors import changes_between
from autoopt.engine.sweeps.bisection.timing import Timed
from autoopt.engine.sweeps.bisection.variants import CHOICE, Budget, NotMade, VariantModel
from autoopt.engine.sweeps.request import SweepRequest
from autoopt.engine.sweeps.sweep import run_sweep
from autoopt.engine.work.environment import versions
from autoopt.errors import InputError, SystemFailure
from autoopt.metrics import Estimate
from autoopt.model.model_file import ModelFile
from autoopt.report.sweeps.bisection import sentence
from autoopt.results import SweepEntry, SweepResult
from autoopt.results.bisection import Factor, OperatorDifference
from autoopt.store import Store, open_store
from autoopt.workers import WorkerPool, gated_call

DAG = """\
name: small
passes: {fold: {pass: identity_elimination}}
chains: [[fold]]
constraints: []
measurement: {seconds: 0.05, replicas: 1, target_width: 1.0, rounds: 0}
"""
ZOO = "name: nightly\ndag: dag.yaml\nbisect: {minutes: 1}\nmodels: [{path: small, tags: [few]}, large]\n"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo after two sweeps; the second one answers from the store."""
    folder = tmp_path_factory.mktemp("zoo")
    write(mlp(), folder / "small")
    write(mlp(width=1 << 17), folder / "large")  # a hundred times slower, whatever else the machine does
    (folder / "dag.yaml").write_text(DAG)
    (folder / "zoo.yaml").write_text(ZOO)
    for _ in range(2):
        run_sweep(SweepRequest(zoo=folder / "zoo.yaml", home=folder / "home"))
    return folder


@pytest.fixture
def store(zoo: Path) -> Iterator[Store]:
    with open_store(None, zoo / "home") as opened:
        yield opened


def newest(store: Store) -> SweepResult:
    return SweepResult.from_json(store.sweeps.get("latest").result or {})


def test_what_changed_is_told_apart_from_what_cannot_be_varied() -> None:
    libraries = {"onnxruntime": "1.30.0", "numpy": "2.1", "autoopt": "0.1", "nncf": "3.0"}
    before = SweepEntry(
        "cnn", "ok", environment={"host": "a", "libraries": libraries}, inputs={"DAG": "1", "user script": "1"}
    )
    after = replace(
        before,
        environment={"host": "b", "libraries": {"onnxruntime": "1.31.1", "numpy": "2.1", "autoopt": "0.2"}},
        inputs={"DAG": "2", "user script": "2"},
    )
    changes = changes_between(before, after)
    assert changes.libraries == (Factor("onnxruntime", "1.30.0", "1.31.1"),)
    assert changes.inputs == (Factor("DAG", "1", "2"),)
    assert changes.not_varied == ("host a -> b", "autoopt 0.1 -> 0.2", "nncf 3.0 -> none", "user script 1 -> 2")
    assert changes_between(replace(before, environment={}), after).not_varied[:1] != ("host none -> b",)


def test_an_environment_has_the_recorded_version_and_borrows_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments = Environments(tmp_path / "home")
    assert environments.python(versions()) == sys.executable
    describe = "def describe(payload):\n    return {'version': '0.0.1'}\n"
    write_wheel(tmp_path / "wheels", "onnxslim", "0.0.1", describe)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    python = environments.python({**versions(), "onnxslim": "0.0.1"})
    with WorkerPool(size=1, python=python, lend=True) as pool:
        assert gated_call(pool, "onnxslim:describe", {}).value == {"version": "0.0.1"}
        runtime = gated_call(pool, "autoopt.model.worker:runtime", {}).value
    assert runtime["onnxruntime"] == versions()["onnxruntime"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert environments.python({"onnxslim": "0.0.1"}) == python, "made only once"
    with pytest.raises(
        SystemFailure, match=r"cannot install onnxslim==0\.0\.2 \(.*\); check the network, or point PIP"
    ):
        environments.python({"onnxslim": "0.0.2"})


@pytest.mark.parametrize("libraries", [{"onnxslim": "1 --index-url http://x"}, {"onnxslim": "-r x"}, {"evil": "1.0"}])
def test_only_versions_of_known_libraries_are_installed(tmp_path: Path, libraries: dict[str, str]) -> None:
    with pytest.raises(SystemFailure, match="is no version of a library that autoopt uses"):
        Environments(tmp_path).python(libraries)


@dataclass(frozen=True)
class Simulated:
    """Models whose time is the product of effects of the factors, known within 1 %."""

    effects: Mapping[frozenset[str], float]
    factors: tuple[Factor, ...]
    broken: frozenset[str] = frozenset()
    """A combination that cannot be made."""

    def model(self, changed: frozenset[str]) -> VariantModel:
        if changed and changed == self.broken:
            raise NotMade("cannot be made")
        time = 1.0
        for names, effect in self.effects.items():
            if names <= changed:
                time *= effect
        return VariantModel(ModelFile("model.onnx"), sys.executable, {"time": str(time)})

    def compare(self, reference: VariantModel, others: Mapping[str, VariantModel], until: float) -> Timed:
        ratios = {}
        for name, model in others.items():
            ratio = float(model.runtime["time"]) / float(reference.runtime["time"])
            ratios[name] = Estimate(ratio, 0.99 * ratio, 1.01 * ratio)
        return Timed(ratios, {}, busy=False)

    def profiles(self, before: VariantModel, after: VariantModel) -> tuple[OperatorDifference, ...]:
        return (OperatorDifference("Gemm", 1.0, 2.0),)


FACTORS = tuple(Factor(name, "1", "2") for name in ("a", "b", "c"))


@pytest.mark.parametrize(
    ("effects", "cause"),
    [
        ({"b": 1.4}, ("b",)),
        ({"b": 0.7}, ("b",)),
        ({"ab": 1.5}, ("a", "b")),
        ({"a": 1.2, "c": 1.3}, ("a", "c")),
        ({"a": 1.5, "b": 1 / 1.5}, ()),
        ({"abc": 1.3}, ()),
        ({}, ()),
    ],
)
def test_the_cause_is_a_factor_or_a_pair(effects: dict[str, float], cause: tuple[str, ...]) -> None:
    simulated = Simulated({frozenset(names): effect for names, effect in effects.items()}, FACTORS)
    outcome = CauseSearch(simulated, simulated).run(float("inf"))
    assert outcome.cause == cause
    assert bool(outcome.operators) == bool(cause)
    assert outcome.variants[0].changed == ("a", "b", "c")


def test_a_factor_that_cannot_be_varied_alone_may_be_part_of_a_pair() -> None:
    simulated = Simulated({frozenset("ab"): 1.5}, FACTORS, broken=frozenset("a"))
    outcome = CauseSearch(simulated, simulated).run(float("inf"))
    assert outcome.cause == ("a", "b")
    assert outcome.variants[1].reason == "cannot be made"


def test_of_two_nights_in_which_nothing_changed_nothing_is_measured(store: Store) -> None:
    outcome = bisect(store, "latest", "small", Budget(home=store.home))
    assert (outcome.factors, outcome.cause) == ((), ())
    assert sentence(outcome).startswith("Nothing that autoopt records has changed for small")
    assert next(entry.bisection for entry in newest(store).models if entry.name == "small") == outcome


def test_two_models_are_measured_in_processes_of_their_own(store: Store) -> None:
    """The later night chose a model that is much slower; both run in this environment."""
    result = newest(store)
    small, large = result.models
    slower = replace(small, result=replace(large.result, run=small.run))  # type: ignore[type-var]
    models = (slower, large)
    store.sweeps.finish(result.sweep, "finished", replace(result, models=models).to_json())
    outcome = bisect(store, "latest", "small", Budget(home=store.home))
    [factor] = outcome.factors
    assert (factor.name, outcome.cause) == (CHOICE, (CHOICE,))
    assert outcome.total is not None
    assert outcome.total.ratio is not None
    assert outcome.total.ratio.low > 1
    assert outcome.operators[0].after > outcome.operators[0].before
    store.sweeps.finish(result.sweep, "finished", result.to_json())


@pytest.mark.soak
def test_a_model_is_measured_on_two_releases_of_onnxruntime(store: Store) -> None:
    """The earlier night is recorded as one of another release, which is installed from the package index."""
    earlier_version = "1.20.1"
    first = list(store.sweeps.all())[-1]
    result = SweepResult.from_json(first.result or {})
    models = []
    for entry in result.models:
        environment = {**entry.environment, "libraries": {**versions(), "onnxruntime": earlier_version}}
        models.append(replace(entry, environment=environment))
    store.sweeps.finish(first.id, "finished", replace(result, models=tuple(models)).to_json())
    outcome = bisect(store, "latest", "large", Budget(home=store.home))
    assert outcome.factors == (Factor("onnxruntime", earlier_version, versions()["onnxruntime"]),)
    assert outcome.total is not None
    assert outcome.total.ratio is not None
    assert len(list((store.home / "environments").iterdir())) == 1
    store.sweeps.finish(first.id, "finished", result.to_json())


def test_what_cannot_be_bisected_is_refused(store: Store) -> None:
    first = [record.id for record in store.sweeps.all()][-1]
    budget = Budget(home=store.home)
    with pytest.raises(InputError, match="MODEL: small is new in this sweep: there is no earlier night"):
        bisect(store, first, "small", budget)
    with pytest.raises(InputError, match="has no model 'gru'; it has: small, large"):
        bisect(store, "latest", "gru", budget)
    with pytest.raises(InputError, match="nothing"):
        bisect(store, "nothing", "small", budget)


def test_a_night_bisects_its_regressions(zoo: Path, store: Store) -> None:
    """The earlier night's figures are made better than they were, so that the next night is worse."""
    result = newest(store)
    entries = []
    for entry in result.models:
        assert entry.result is not None
        assert entry.best is not None
        ratios = {**entry.best.ratios, "latency_p50": Estimate(0.1, 0.099, 0.101)}
        entries.append(replace(entry, result=replace(entry.result, best=replace(entry.best, ratios=ratios))))
    store.sweeps.finish(result.sweep, "finished", replace(result, models=tuple(entries)).to_json())
    request = SweepRequest(zoo=zoo / "zoo.yaml", home=zoo / "home", only="few", nightly=True, out=zoo / "out")
    night = run_sweep(request)
    assert night.regressions == ("small",)
    assert night.models[0].bisection is not None
    assert "Nothing that autoopt records has changed for small" in (zoo / "out" / "sweep.html").read_text()
