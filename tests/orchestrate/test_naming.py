"""Names, tags and final states of flow runs."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.client.schemas.objects import StateType

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.orchestrate.flow_runs.naming import (
    MAX_KEY,
    artifact_key,
    chain_run_name,
    chain_state,
    flow_run_name,
    model_run_name,
    night_name,
    session_run_name,
    tags_of,
    trial_state,
)
from autoopt.outcome import Outcome
from autoopt.results import TrialResult


def session(name: str = "cnn") -> Any:
    """The part of a session that names use."""
    goal = SimpleNamespace(
        objectives=(Objective("throughput", "maximize"),), constraints=(Constraint("size", max_ratio=0.5),)
    )
    problem = SimpleNamespace(plan=SimpleNamespace(name="quick"), target=SimpleNamespace(name="local"), goal=goal)
    return SimpleNamespace(name=name, ctx=SimpleNamespace(run="1f2e", problem=problem))


def test_nights_are_named_after_zoo_tag_and_time(tmp_path: Path) -> None:
    (tmp_path / "zoo.yaml").write_text("name: production\nmodels: [m.onnx]\n")
    due = datetime(2026, 11, 22, 2, 0).astimezone()
    assert night_name(tmp_path / "zoo.yaml", None, due) == "production · 2026-11-22 02:00"
    assert night_name(str(tmp_path / "elsewhere.yaml"), "cnn", due) == "elsewhere · cnn · 2026-11-22 02:00"


@given(st.lists(st.text()))
def test_an_artifact_key_is_what_prefect_allows(names: list[str]) -> None:
    key = artifact_key("result", *names)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key)
    assert len(key) <= MAX_KEY + 9


def test_long_artifact_keys_differ() -> None:
    keys = {artifact_key("trials", "x" * 150, end) for end in ("a", "b")}
    assert len(keys) == 2


@given(st.text())
def test_a_name_has_no_braces_because_prefect_formats_it(text: str) -> None:
    name = flow_run_name(text)
    assert name.format() == name
    assert name == text.replace("{", "").replace("}", "")


@pytest.mark.parametrize(
    ("dag", "model", "name"),
    [
        ("dags/quick.yaml", "/zoo/cnn/model.onnx", "cnn · quick"),
        ("quick.yaml", "net.onnx", "net.onnx · quick"),
        ({"name": "mine"}, None, "model · mine"),
        ("d.yaml", "https://me:secret@host/net.onnx?signature=secret", "net.onnx · d"),
        ({}, "net.onnx", "net.onnx · dag"),
        (None, None, "model · dag"),
        ("{x}.yaml", "/zoo/{cnn}/model.onnx", "cnn · x"),
    ],
)
def test_a_model_run_is_named_after_model_and_dag(dag: object, model: object, name: str) -> None:
    assert model_run_name(dag, model) == name


def test_a_relative_model_is_named_after_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cnn").mkdir()
    monkeypatch.chdir(tmp_path / "cnn")
    assert model_run_name("d.yaml", "model.onnx") == "cnn · d"


@pytest.mark.parametrize(("name", "expected"), [("cnn", "cnn · quick"), ("cnn · gpu", "cnn · quick · gpu")])
def test_a_session_is_named_after_model_dag_and_target(name: str, expected: str) -> None:
    assert session_run_name(session(name)) == expected


def test_a_chains_later_flow_runs_are_numbered() -> None:
    assert [chain_run_name("a -> b", number) for number in (1, 2)] == ["a -> b", "a -> b · round 2"]


def test_tags_lead_from_prefect_to_the_store() -> None:
    assert tags_of(session()) == ["model:cnn", "dag:quick", "target:local", "run:1f2e"]


def test_a_trial_shows_the_runs_own_objectives_and_constraints() -> None:
    metrics = {
        name: Estimate.exact(value) for name, value in (("throughput", 10.0), ("size", 5.0), ("latency_p50", 1.0))
    }
    ratios = {"size": Estimate.exact(0.25), "latency_p50": Estimate.exact(0.5)}
    state = trial_state(TrialResult("c", {}, Outcome.OK, metrics=metrics, ratios=ratios), session())
    assert state.type is StateType.COMPLETED
    assert state.message is not None
    assert state.message.startswith("ok, throughput 10")
    assert "size 0.25" in state.message
    assert "latency_p50" not in state.message


def test_a_failed_trial_fails_its_task_run_and_says_why() -> None:
    state = trial_state(TrialResult("c", {}, Outcome.REFUSED, message="odd"), session())
    assert (state.type, state.message) == (StateType.FAILED, "refused: odd")


def test_a_chain_fails_only_if_all_its_trials_did() -> None:
    good, bad = TrialResult("c", {}, Outcome.OK), TrialResult("c", {}, Outcome.CRASHED)
    some, none = chain_state([good, bad], executed=1), chain_state([bad], executed=0)
    assert (some.type, some.message) == (StateType.COMPLETED, "1 of 2 trials ok, 1 executed now")
    assert (none.type, none.message) == (StateType.FAILED, "0 of 1 trials ok, 0 executed now")
