"""Resolved requests: what a request names, and the identity of its run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_sets
import numpy as np
import pytest
from simulation import INSPECTION, SOURCE, ReadingPool, Simulation, write_model

from autoopt.errors import ConfigError, InputError
from autoopt.model.inspection import ValueSpec
from autoopt.problem import reading
from autoopt.problem.goal import GoalOptions
from autoopt.problem.load import spec_of
from autoopt.problem.problem import Limits, Problem
from autoopt.problem.resolve import make_plan, make_plans, stored_problem
from autoopt.problem.resolve import resolve as resolve_request
from autoopt.problem.run_request import RunRequest
from autoopt.results import Note
from autoopt.settings import settings
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.store import RunRecord

DAG: dict[str, Any] = {"name": "d", "passes": {"clean": "remove_unused"}, "chains": [["clean"]]}


@pytest.fixture(autouse=True)
def described(pool: ReadingPool) -> None:
    pool.answers[reading.DESCRIBE_DATA] = {"labels": False, "columns": {}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model({**SOURCE, "passes": ["mine"]}, tmp_path / "mine")


def resolve(simulation: Simulation, model: Path, dag: object = None, **options: Any) -> Problem:
    request = RunRequest(dag=dag or DAG, model=model, home=simulation.folder / "home", **options)
    return resolve_request(request, spec_of(request), simulation.resources)


def data(simulation: Simulation, name: str) -> str:
    path = simulation.folder / f"{name}.npz"
    np.savez(path, x=np.full((2, 3), len(name), np.float32))
    return str(path)


def test_the_evaluation_data_also_calibrates(simulation: Simulation, model: Path) -> None:
    sets = resolve(simulation, model, data=data(simulation, "a")).data
    assert sets.calibration == sets.evaluation
    assert not sets.latency


def test_data_of_the_request_overrides_that_of_the_dag(simulation: Simulation, model: Path) -> None:
    dag = {**DAG, "data": {"evaluation": data(simulation, "a"), "calibration": data(simulation, "bb")}}
    sets = resolve(simulation, model, dag, data=data(simulation, "ccc")).data
    assert sets.evaluation.config is not None
    assert sets.calibration.config is not None
    assert str(sets.evaluation.config["path"]).endswith("ccc.npz")
    assert str(sets.calibration.config["path"]).endswith("bb.npz")


def test_limits_of_the_request_override_those_of_the_dag(simulation: Simulation, model: Path) -> None:
    dag = {**DAG, "limits": {"pass_seconds": 5}}
    assert resolve(simulation, model, dag).limits.pass_seconds == 5
    limits = Limits(pass_seconds=9.0)
    assert resolve(simulation, model, dag, limits=limits).limits == limits


def test_settings_of_the_request_override_those_of_the_dag(simulation: Simulation, model: Path) -> None:
    dag = {**DAG, "measurement": {"seconds": 1, "seed": 3}, "search": {"trials": 5}}
    problem = resolve(simulation, model, dag, measurement={"seconds": 2}, search={"trials": 7})
    assert problem.measurement == {"seconds": 2, "seed": 3}
    assert problem.search.trials == 7


def test_a_wrong_setting_is_refused(simulation: Simulation, model: Path) -> None:
    with pytest.raises(InputError, match="rounds"):
        resolve(simulation, model, measurement={"rounds": -1})


@pytest.mark.parametrize("is_bare", [False, True])
@pytest.mark.parametrize("name", ["a", None])
def test_the_record_of_a_run_holds_its_problem(
    simulation: Simulation, pool: ReadingPool, model: Path, is_bare: bool, name: str | None
) -> None:
    """Also data that was made up, and fields that were added to the data: here, those of recurrent state."""
    pool.answers[reading.DESCRIBE_DATA] = {"columns": {}, "state": {"out": "in"}, "reset_every": 5}
    dag: object = str(model) if is_bare else DAG
    request = RunRequest(dag=dag, model=model, data=name and data(simulation, name), home=simulation.folder / "home")
    first = resolve_request(request, spec_of(request), simulation.resources)
    settings = json.loads(json.dumps({"sources": first.sources.to_json()}))
    record = RunRecord("r", "r", first.identity, first.source.artifact, settings=settings)
    pool.functions.clear()
    request = replace(request, model=f"artifact://{first.source.artifact}")
    again = stored_problem(record, request, simulation.resources)
    assert pool.functions == [], "nothing is read again"
    assert replace(again.sources, path="") == replace(first.sources, path="")
    assert (again.identity, again.goal, again.data, again.notes) == (
        first.identity,
        first.goal,
        first.data,
        first.notes,
    )
    if name is not None:
        np.savez(simulation.folder / "a.npz", x=np.zeros((2, 3), np.float32))
        with pytest.raises(InputError, match="run r cannot be joined here: the DAG, the data"):
            stored_problem(record, request, simulation.resources)


def test_the_same_request_has_the_same_identity(simulation: Simulation, model: Path) -> None:
    assert resolve(simulation, model).identity == resolve(simulation, model).identity


@pytest.mark.parametrize(
    "change",
    [
        {"measurement": {"seconds": 2}},
        {"search": {"trials": 1}},
        {"dag": {**DAG, "passes": {"clean": "name_fix"}}},
        {"dag": {**DAG, "target": {"threads": 2}}},
        {"dag": {**DAG, "constraints": []}},
        {"dag": {**DAG, "objectives": [{"metric": "size"}]}},
        {"dag": {**DAG, "evaluate": "intermediate"}},
    ],
)
def test_an_identity_depends_on(simulation: Simulation, model: Path, change: dict[str, Any]) -> None:
    assert resolve(simulation, model, **change).identity != resolve(simulation, model).identity


def test_names_and_limits_are_no_part_of_the_identity(simulation: Simulation, model: Path) -> None:
    first = resolve(simulation, model)
    assert resolve(simulation, model, limits=Limits(pass_seconds=9.0)).identity == first.identity
    assert replace(first, model="another name").identity == first.identity


def test_another_runtime_on_a_host_is_another_run(simulation: Simulation, model: Path) -> None:
    first = resolve(simulation, model)
    runtimes = {"python_env /opt/python": {"onnxruntime": "1.0"}}
    assert replace(first, runtimes=runtimes).identity != first.identity


def test_only_the_asked_target_of_several_is_resolved(simulation: Simulation, model: Path) -> None:
    targets = [{"name": "one", "threads": 1}, {"name": "two", "threads": 2}]
    problem = resolve(simulation, model, {**DAG, "targets": targets}, target="two")
    assert (problem.target.name, problem.target.threads) == ("two", 2)


def test_a_bare_model_needs_a_proposal(simulation: Simulation, model: Path) -> None:
    request = RunRequest(dag=str(model))
    assert spec_of(request).name == "proposed"
    with pytest.raises(InputError, match="no such model file"):
        spec_of(RunRequest(dag=str(simulation.folder / "gone.onnx")))


def test_sizes_of_generated_inputs_are_fixed_and_said(simulation: Simulation, pool: ReadingPool, model: Path) -> None:
    inspection = replace(INSPECTION, inputs=(ValueSpec("x", "float32", ("n", 3, "h", "w")),))
    column = {"dtype": "float32", "shape": [1, 3, 8, 9]}
    pool.answers[reading.INSPECT] = inspection.to_json()
    pool.answers[reading.DESCRIBE_DATA] = {"columns": {"x": column}, "made_up": True, "assumed": ["images of 8x9"]}
    problem = resolve(simulation, model, str(model))
    assert Note("generated inputs: images of 8x9; --image-size HxW or --data FILE changes this") in problem.notes
    config = problem.data.calibration.config
    assert config is not None
    assert config["load_dataset"]["params"]["shapes"] == {"x": [1, 3, 8, 9]}


def test_options_of_a_proposal_do_not_go_with_a_dag() -> None:
    with pytest.raises(InputError):
        spec_of(RunRequest(dag=DAG, proposal_options=ProposalOptions(precision="int8")))


def test_a_dag_that_cannot_be_run_here_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such interpreter"):
        spec_of(RunRequest(dag={**DAG, "target": {"python": "/no/such/python"}}))


ROOT = Path(__file__).parents[2]
MODEL = ROOT / "dags/digits/model.onnx"
ALTERNATIVES = {"name": "d", "passes": {"q": "weight_only_quantization", "s": "simplify"}, "chains": [["q"], ["s"]]}


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    yield
    settings.cache_clear()


def use_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_HOME", str(home))
    settings.cache_clear()


def test_an_inspection_is_kept_beside_the_store_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_home(tmp_path, monkeypatch)
    assert make_plan(ALTERNATIVES, MODEL).chain_count == 2
    replies = (tmp_path / "readings").glob("*/reply.json")  # one of them is the order of the first points
    (kept,) = [reply for reply in replies if "op_counts" in reply.read_text()]
    found = json.loads(kept.read_text())
    assert found["op_counts"]["Gemm"] >= 1
    kept.write_text(json.dumps({**found, "op_counts": {"Conv": 1}}))
    assert make_plan(ALTERNATIVES, MODEL).pruned_by_rule == {"inspection": 1}
    kept.write_text("damaged")
    assert make_plan(ALTERNATIVES, MODEL).chain_count == 2
    assert json.loads(kept.read_text()) == found


def test_nothing_is_written_where_there_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "none"
    use_home(home, monkeypatch)
    make_plan(ALTERNATIVES, MODEL)
    assert not home.exists()


def test_the_installed_runtime_is_asked_for_another_provider_than_the_cpus() -> None:
    made = make_plan({**ALTERNATIVES, "target": {"execution_provider": "QNNExecutionProvider"}}, MODEL)
    assert made.pruned_by_rule == {"runtime": 2}


def test_passes_of_a_user_script_are_planned(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "from typing import Annotated\nfrom autoopt import Categorical, register\n\n"
        "@register('halve')\ndef halve(model, factor: Annotated[int, Categorical(1, 2, 3), 'x'] = 1):\n    'Halves.'\n"
        "    return model\n"
    )
    dag = {"name": "d", "passes": {"h": {"pass": "halve", "params": "search"}}, "chains": [["h"]]}
    assert make_plan({**dag, "user_script": str(script)}).point_count == 3
    script.write_text("raise ValueError('broken')\n")
    with pytest.raises(InputError, match="broken"):
        make_plan({**dag, "user_script": str(script)})


@pytest.mark.parametrize("use", ["evaluation", "calibration"])
def test_the_data_of_a_dag_are_refused_as_a_run_does(use: str, tmp_path: Path) -> None:
    data = tmp_path / "d.csv"
    data.write_text("a,b\n3,1\n4,2\n")
    for value in (str(data), {"path": str(data), "input_cols": ["a"]}):
        with pytest.raises(InputError, match=r"d.csv.*shape"):
            make_plan({**ALTERNATIVES, "data": {use: value}}, MODEL)
    good = str(MODEL.with_name("evaluation.npz"))
    plan = make_plan({**ALTERNATIVES, "data": {use: str(data)}}, MODEL, good, calibration=good)
    assert plan.chain_count == 2, "options override"


@pytest.mark.parametrize("dag", [MODEL, ALTERNATIVES])
def test_data_that_a_run_refuses_is_refused(dag: object, tmp_path: Path) -> None:
    data = tmp_path / "d.csv"
    data.write_text("a,b\nleft,1\nright,2\n")
    with pytest.raises(InputError, match="text"):
        make_plan(dag, None if dag is MODEL else MODEL, str(data))  # type: ignore[arg-type]
    data.write_text("a,b\n3,1\n4,2\n")
    with pytest.raises(InputError, match="shape"):
        make_plan(dag, None if dag is MODEL else MODEL, calibration=str(data))  # type: ignore[arg-type]


def test_arrays_are_no_data_of_a_plan() -> None:
    with pytest.raises(InputError, match=r"^data: expected an object"):
        make_plan(ALTERNATIVES, MODEL, np.zeros((2, 3)))


@pytest.mark.parametrize("has_data", [False, True])
def test_a_plan_of_bare_models_counts_on_data_only_if_there_are_some(tmp_path: Path, has_data: bool) -> None:
    paths = model_sets.write_set(tmp_path, merged=True)
    data = model_sets.write_texts(tmp_path) if has_data else None
    plans = make_plans(RunRequest(paths["encoder"], parts=paths, data=data)).by_name
    assert plans.keys() == {"encoder", "decoder"}
    for plan in plans.values():
        found = {decision.what for decision in plan.decisions}
        assert ("quality" in found) == has_data


def test_a_plan_states_the_goal_of_a_run_as_far_as_it_is_known() -> None:
    labelled = str(MODEL.with_name("evaluation.npz"))
    assert make_plan(ALTERNATIVES, MODEL).goal == ("minimize latency_p50", "agreement at least 0.9800")
    assert make_plan(ALTERNATIVES, MODEL, labelled).goal[1] == "accuracy may get worse by at most 0.01"
    assert make_plan({**ALTERNATIVES, "data": {"evaluation": labelled}}).goal == ("minimize latency_p50",)
    with pytest.raises(InputError, match="needs labels"):
        make_plan(ALTERNATIVES, MODEL, goal=GoalOptions(max_drop=0.02))
