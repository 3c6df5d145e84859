"""The best model of each target, and the best single one for all, over simulated machines."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation import Simulation

from autoopt.engine.run.session import search_inline
from autoopt.engine.targets.part import TargetPart
from autoopt.engine.targets.single_best import HOW, find_contenders, join_targets, mean
from autoopt.metrics import Constraint, Estimate
from autoopt.problem.run_request import RunRequest

DAG = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused"},
    "chains": [["fold"], ["clean"]],
}
FOREVER = math.inf


def make_part(folder: Path, name: str, fold: float, clean: float, **options: object) -> TargetPart:
    """A searched part; the factors are the speed of the two chains on this target."""
    folder.mkdir()
    simulation = Simulation(folder, dag=DAG, **options)  # type: ignore[arg-type]
    # The artifacts must be the same on all targets, so the speeds differ by the noise of the latency.
    simulation.pool.passes = {
        "identity_elimination": lambda model, params: {**model, "chain": "fold"},
        "remove_unused": lambda model, params: {**model, "chain": "clean", "size": 900.0},
    }
    simulation.pool.noise = lambda model: {"fold": fold, "clean": clean}.get(model.get("chain", ""), 1.0)
    session = simulation.session()
    part = TargetPart(name, RunRequest(dag=simulation.plan.spec), simulation.inputs(), session)
    with session:
        part.result = session.execute(search_inline)
    return part


@pytest.fixture
def targets(tmp_path: Path) -> list[TargetPart]:
    """On `one` folding is best, on `two` cleaning; over both, folding is."""
    return [make_part(tmp_path / "1", "one", 0.2, 0.6), make_part(tmp_path / "2", "two", 0.8, 0.7)]


def test_contenders_are_the_good_models_of_every_target_each_once(targets: list[TargetPart]) -> None:
    contenders = find_contenders(targets)
    assert {contender.trial.chain.name for contender in contenders.values()} == {"fold", "clean"}
    assert {contender.made_on for contender in contenders.values()} == {"one"}


def test_each_target_has_its_best_model(targets: list[TargetPart]) -> None:
    joined = join_targets(targets, FOREVER)
    assert {name: model.chain for name, (model, _) in joined.best.items() if model} == {"one": "fold", "two": "clean"}
    assert joined.notes == []


def test_the_single_model_has_the_best_geometric_mean(targets: list[TargetPart]) -> None:
    single = join_targets(targets, FOREVER).single
    assert (single.first.chain, single.metric, single.how) == ("fold", "latency_p50", HOW)
    assert single.value.value == pytest.approx(math.sqrt(0.2 * 0.8), rel=0.01)
    assert list(single.targets) == ["one", "two"]


def test_the_source_is_the_single_model_if_none_gains_for_certain(tmp_path: Path) -> None:
    parts = [make_part(tmp_path / "1", "one", 0.5, 1.0), make_part(tmp_path / "2", "two", 2.0, 1.0)]
    single = join_targets(parts, FOREVER).single
    assert single.first.is_source
    assert single.value == Estimate.exact(1.0)


def test_there_is_no_single_model_if_none_meets_the_constraints(tmp_path: Path) -> None:
    tiny = {"constraints": (Constraint("size", max=1.0),)}
    parts = [make_part(tmp_path / name, name, 0.5, 0.5, **tiny) for name in ("one", "two")]
    assert join_targets(parts, FOREVER).single is None


def test_without_time_each_target_keeps_its_own_best(targets: list[TargetPart]) -> None:
    joined = join_targets(targets, -1.0)
    assert joined.notes == ["time is up: 4 measurements of good models on other targets were skipped"]
    assert {name: made_on for name, (_, made_on) in joined.best.items()} == {"one": "one", "two": "two"}


positive = st.floats(0.01, 100.0)


@given(st.lists(positive, min_size=1, max_size=5))
def test_the_mean_of_exact_values_is_their_geometric_mean(values: list[float]) -> None:
    combined = mean([Estimate.exact(value) for value in values])
    assert combined.value == pytest.approx(math.prod(values) ** (1 / len(values)))
    assert combined.low == pytest.approx(combined.value)
    assert combined.high == pytest.approx(combined.value)


@given(st.lists(positive, min_size=1, max_size=5), st.floats(0.0, 0.5))
def test_the_interval_of_the_mean_contains_it_and_grows_with_the_intervals(values: list[float], width: float) -> None:
    narrow = mean([Estimate(v, v * (1 - width / 2), v * (1 + width / 2)) for v in values])
    wide = mean([Estimate(v, v * (1 - width), v * (1 + width)) for v in values])
    assert wide.low <= narrow.low * (1 + 1e-9)
    assert narrow.low <= narrow.value * (1 + 1e-9)
    assert narrow.value <= narrow.high * (1 + 1e-9)
    assert narrow.high <= wide.high * (1 + 1e-9)


def test_values_that_may_be_negative_have_an_arithmetic_mean() -> None:
    combined = mean([Estimate(-1.0, -2.0, 0.0), Estimate(3.0, 3.0, 3.0)])
    assert (combined.value, combined.low, combined.high) == (1.0, 0.5, 1.5)
