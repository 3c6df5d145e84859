"""The base class of passes."""

from __future__ import annotations

from typing import Annotated

import onnx
import pytest
from micro_models import MODELS

from autoopt import Categorical, Pass, Refused, Retry


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


def test_the_signature_is_unchanged_by_default() -> None:
    feeds = {"x": object()}
    assert Pass().feeds(feeds) is feeds  # type: ignore[arg-type]  # any values
