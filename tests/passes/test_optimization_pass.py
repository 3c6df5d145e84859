"""The base class of passes."""

from __future__ import annotations

from typing import Annotated

import onnx
import pytest
from micro_models import MODELS
from pydantic import ValidationError

from autoopt import Categorical, Pass, Refused, Retry
from autoopt.registry import ParameterInfo
from autoopt.target import Accelerator


class Renamed(Pass):
    """Renames the graph."""

    touches = ("names",)
    name: Annotated[str, Categorical("a", "b"), "the new name"] = "a"
    count: int = 1

    def run(self, model: onnx.ModelProto) -> onnx.ModelProto | Retry | None:
        if self.name == "keep":
            return None
        if self.name == "retry":
            return Retry("another name", {"name": "a"})
        if self.name == "refuse":
            raise Refused("not this name")
        model.graph.name = self.name
        return model

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return None if parameter.name == "count" and accelerator.device == "gpu" else parameter


def test_parameters_have_defaults_and_are_set_by_name() -> None:
    assert (Renamed().name, Renamed().count) == ("a", 1)
    assert Renamed(name="b").name == "b"


def test_calling_a_pass_runs_it_on_a_copy() -> None:
    model = MODELS["mlp"]()
    before = model.SerializeToString()
    assert Renamed(name="b")(model).graph.name == "b"
    assert model.SerializeToString() == before


def test_nothing_to_do_returns_the_argument() -> None:
    model = MODELS["mlp"]()
    assert Renamed(name="keep")(model) is model


@pytest.mark.parametrize(("name", "reason"), [("refuse", "not this name"), ("retry", "another name")])
def test_refusals_and_retries_raise(name: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        Renamed(name=name)(MODELS["mlp"]())


def test_the_config_class_lists_the_parameters_of_a_device() -> None:
    assert Renamed.config_class()().model_dump() == {"name": "a", "count": 1}
    assert set(Renamed.config_class(Accelerator(device="gpu")).model_fields) == {"name"}
    with pytest.raises(ValidationError):
        Renamed.config_class()(name=3)


def test_the_signature_is_unchanged_by_default() -> None:
    feeds = {"x": object()}
    assert Pass().feeds(feeds) is feeds  # type: ignore[arg-type]  # any values
