"""A plan without a run: what is asked of a worker, and what is remembered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import model_sets
import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.problem.goal import GoalOptions
from autoopt.problem.plans import make_plan, make_plans
from autoopt.problem.run_request import RunRequest
from autoopt.settings import settings

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "dags/digits/model.onnx"
DAG = {"name": "d", "passes": {"q": "weight_only_quantization", "s": "simplify"}, "chains": [["q"], ["s"]]}


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    yield
    settings.cache_clear()


def use_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_HOME", str(home))
    settings.cache_clear()


def test_an_inspection_is_kept_beside_the_store_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_home(tmp_path, monkeypatch)
    assert make_plan(DAG, MODEL).chain_count == 2
    replies = (tmp_path / "readings").glob("*/reply.json")  # one of them is the order of the first points
    (kept,) = [reply for reply in replies if "op_counts" in reply.read_text()]
    found = json.loads(kept.read_text())
    assert found["op_counts"]["Gemm"] >= 1
    kept.write_text(json.dumps({**found, "op_counts": {"Conv": 1}}))
    assert make_plan(DAG, MODEL).pruned_by_rule == {"inspection": 1}
    kept.write_text("damaged")
    assert make_plan(DAG, MODEL).chain_count == 2
    assert json.loads(kept.read_text()) == found


def test_nothing_is_written_where_there_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "none"
    use_home(home, monkeypatch)
    make_plan(DAG, MODEL)
    assert not home.exists()


def test_the_installed_runtime_is_asked_for_another_provider_than_the_cpus() -> None:
    made = make_plan({**DAG, "target": {"execution_provider": "QNNExecutionProvider"}}, MODEL)
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
            make_plan({**DAG, "data": {use: value}}, MODEL)
    good = str(MODEL.with_name("evaluation.npz"))
    plan = make_plan({**DAG, "data": {use: str(data)}}, MODEL, good, calibration=good)
    assert plan.chain_count == 2, "options override"


@pytest.mark.parametrize("dag", [MODEL, DAG])
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
        make_plan(DAG, MODEL, np.zeros((2, 3)))


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
    assert make_plan(DAG, MODEL).goal == ("minimize latency_p50", "agreement at least 0.9800")
    assert make_plan(DAG, MODEL, labelled).goal[1] == "accuracy may get worse by at most 0.01"
    assert make_plan({**DAG, "data": {"evaluation": labelled}}).goal == ("minimize latency_p50",)
    with pytest.raises(InputError, match="needs labels"):
        make_plan(DAG, MODEL, goal=GoalOptions(max_drop=0.02))
