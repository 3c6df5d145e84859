"""Names and tags of flow runs, and keys of artifacts."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.orchestrate.names import MAX_KEY, artifact_key, model_run_name, night_name


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
