"""Pass objects built from registered classes and functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import onnx_ir as ir
import pytest
from bench import ops
from micro_models import MODELS
from onnx import ModelProto

from autoopt import Categorical, ConditionalDefault
from autoopt.errors import InputError
from autoopt.passes.base import Pass, Refused, SessionOptions, SourceFile
from autoopt.passes.base.build import build_pass, full_config
from autoopt.registry import Param, describe, form_of, register, registry


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    @register("built_class")
    class Built(Pass):
        """A class with parameters of every category."""

        how: Annotated[Any, Param("object"), "an object of the script"] = None
        table: Annotated[str, Param("data"), "a file below the data root"] = ""
        size: int = 2

        def run(self, model: Any) -> None:
            return None

    @register("built_function")
    def built(model: SourceFile, size: int = 2) -> Any:
        """A function."""
        return (model, size)

    vars(built)["touches"] = ("metadata",)
    yield
    for name in ("built_class", "built_function"):
        registry().loaded.pop(name)
        registry().origins.pop(name)


def build(name: str, objects: dict[str, object] | None = None, data_root: str = "", **params: Any) -> Any:
    info = registry().info(name)
    return build_pass(info, full_config(info, params), objects, data_root)


def test_a_class_gets_its_parameters() -> None:
    assert build("built_class", size=5).size == 5


def test_a_function_becomes_a_pass_with_its_attributes() -> None:
    pass_ = build("built_function", size=7)
    assert pass_.run(Path("model")) == (Path("model"), 7)
    assert (pass_.touches, pass_.tolerance) == (("metadata",), "equal")


def test_names_of_objects_become_objects_of_the_script() -> None:
    assert build("built_class", {"chosen": len}, how="chosen").how is len


@pytest.mark.parametrize("objects", [None, {}, {"other": len}])
def test_a_missing_object_is_refused(objects: dict[str, object] | None) -> None:
    with pytest.raises(Refused, match="the user script has no 'chosen'"):
        build("built_class", objects, how="chosen")


def test_data_paths_start_at_the_data_root() -> None:
    assert build("built_class", data_root="/data", table="a/b.csv").table == "/data/a/b.csv"
    assert build("built_class", data_root="/data", table="/absolute.csv").table == "/absolute.csv"


def test_built_in_passes_are_built_by_name() -> None:
    assert build("opset_conversion", target_opset=19).target_opset == 19


def test_a_function_is_executed_as_it_is_described() -> None:
    info, pass_ = registry().info("built_function"), build("built_function")
    assert (info.makes_model, info.in_memory) == (True, False)
    assert form_of(type(pass_)) == "source"


def test_the_annotation_of_the_model_says_what_a_pass_takes() -> None:
    class OfIr(Pass):
        def run(self, model: ir.Model) -> ir.Model | None:
            return model

    class OfProto(OfIr):
        def run(self, model: ModelProto) -> ModelProto | None:  # type: ignore[override]
            return model

    def function(model: Path) -> Path:
        return model

    def tuning(options: SessionOptions) -> None: ...

    def analysis(model: ModelProto) -> None: ...

    assert (form_of(OfIr), form_of(OfProto), form_of(function), form_of(tuning)) == ("ir", "proto", "path", "options")
    assert [describe("it", each).analysis for each in (OfIr, function, tuning, analysis)] == [False, False, False, True]
    assert describe("it", tuning).session_only
    assert ops(OfIr()(MODELS["mlp"]())) == ops(MODELS["mlp"]())


class Example(Pass):
    """An example."""

    needed: int
    kind: Annotated[str, Categorical("a", "b"), "what kind"] = "a"
    size: int = ConditionalDefault("kind", {"a": 1, "b": 2}, default=3)  # type: ignore[assignment]
    both: int = ConditionalDefault(("kind", "size"), {("b", 2): 22}, default=0)  # type: ignore[assignment]


INFO = describe("example", Example)


def test_defaults_follow_their_parents() -> None:
    assert full_config(INFO, {"needed": 1}) == {"needed": 1, "kind": "a", "size": 1, "both": 0}
    assert full_config(INFO, {"needed": 1, "kind": "b"}) == {"needed": 1, "kind": "b", "size": 2, "both": 22}
    assert full_config(INFO, {"needed": 1, "kind": "b", "size": 9})["both"] == 0


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "needs parameter 'needed'"),
        ({"needed": 1, "kin": "a"}, "did you mean 'kind'"),
        ({"needed": "1"}, "must be int, not '1'"),
        ({"needed": True}, "must be int"),
    ],
)
def test_wrong_parameters_are_named(params: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        full_config(INFO, params)
