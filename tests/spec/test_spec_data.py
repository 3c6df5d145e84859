"""The data section."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from autoopt.spec.data import DataSpec
from autoopt.spec.strict_model import input_error


def data(value: object) -> DataSpec:
    return DataSpec.model_validate(value)


def test_a_bare_text_is_the_evaluation_data() -> None:
    assert data("x.npz") == data({"evaluation": "x.npz"})


def test_a_named_config_stands_for_its_fields() -> None:
    spec = data({"configs": {"mine": {"path": "x.npz"}}, "evaluation": "mine", "latency": "other.npz"})
    assert spec.evaluation == {"path": "x.npz"}
    assert spec.latency == "other.npz"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"evaluation": ""}, "evaluation: must be a path or a data config"),
        ({"evaluation": 3}, "evaluation: must be a path or a data config"),
        ({"calibration": {"pth": "x"}}, "calibration.pth: "),
        ({"configs": []}, "configs: must be a mapping of names to data configs"),
        ({"configs": {"a": {"pth": "x"}}}, "configs.a.pth: "),
    ],
)
def test_malformed_configs_are_refused_at_their_place(value: object, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        data(value)
    assert str(input_error(refused.value)).startswith(words)


def test_paths_are_resolved_from_the_root_else_from_the_folder() -> None:
    spec = data({"evaluation": "x.npz", "calibration": {"path": "y.npz"}})
    assert spec.resolved("evaluation", Path("/folder")) == "/folder/x.npz"
    assert spec.resolved("evaluation", Path("/folder"), "s3://bucket/data/") == "s3://bucket/data/x.npz"
    assert spec.resolved("calibration", Path("/folder")) == {"path": "/folder/y.npz"}
    assert spec.resolved("latency", Path("/folder")) is None


def test_every_file_has_its_place() -> None:
    spec = data({"evaluation": "x.npz", "latency": {"path": "y.npz"}})
    assert list(spec.paths()) == [(("evaluation",), "x.npz"), (("latency",), "y.npz")]


def test_own_components_are_looked_up_in_the_script_of_the_dag() -> None:
    spec = data({"evaluation": {"load_dataset": "mine"}, "calibration": {"load_dataset": "npz"}})
    own = spec.resolved("evaluation", Path("/dag"), script="/dag/own.py")
    assert own == {"load_dataset": {"type": "mine"}, "user_script": "/dag/own.py"}
    assert spec.resolved("calibration", Path("/dag"), script="/dag/own.py") == {"load_dataset": {"type": "npz"}}
