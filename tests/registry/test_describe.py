"""From the class or function of a pass to its description."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import onnxruntime
import pytest

from autoopt import Boolean, Categorical, Pass
from autoopt.errors import InputError
from autoopt.passes.base import SessionOptions
from autoopt.registry import REQUIRED, Param, ParameterInfo, Unit, describe
from autoopt.registry.describe import form_of
from autoopt.target import Accelerator


def halve(
    model: Any,
    ratio: Annotated[float, Categorical(0.5, 0.25), "share to keep", Unit("%")] = 0.5,
    names: list[str] = REQUIRED,  # type: ignore[assignment]  # as an author writes it
    script: Annotated[str | None, Param("object")] = None,
) -> Any:
    """Halve the model.

    Further lines are not part of the summary.
    """
    return model


class Prune(Pass):
    """Prune weights."""

    tolerance = "lossy"
    requires = ("shape_inference",)
    libraries = ("onnx",)
    needs_data = True
    version = 4
    aliases: ClassVar[list[str]] = ["SparseGPT2"]

    share: Annotated[float, Categorical(0.1, 0.2)] = 0.1
    block: Annotated[bool, Boolean()] = False
    limit: int = 3
    _private: int = 0

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        return None if parameter.name == "block" and accelerator.device == "gpu" else parameter


def test_a_function_s_arguments_after_the_model_are_parameters() -> None:
    info = describe("halve", halve)
    assert [p.name for p in info.parameters] == ["ratio", "names", "script"]
    assert (info.summary, info.family) == ("Halve the model.", "test_describe")
    ratio, names, script = info.parameters
    assert (ratio.unit, ratio.description, ratio.default) == ("%", "share to keep", 0.5)
    assert ratio.search == Categorical(0.5, 0.25)
    assert names.default is REQUIRED
    assert script.category == "object"
    assert info.user_script


def test_a_class_s_annotated_fields_are_parameters() -> None:
    info = describe("prune", Prune)
    assert {p.name for p in info.parameters} >= {"share", "block", "limit"}
    assert not {"_private", "context", "family", "version"} & {p.name for p in info.parameters}
    assert info.parameter("limit").search is None


def test_attributes_of_the_class_carry_over() -> None:
    info = describe("prune", Prune)
    assert (info.tolerance, info.version, info.needs_data) == ("lossy", 4, True)
    assert (info.requires, info.libraries, info.aliases) == (("shape_inference",), ("onnx",), ("SparseGPT2",))
    assert not info.user_script


def test_a_function_has_the_defaults_of_a_pass_that_says_nothing() -> None:
    info = describe("halve", halve)
    assert (info.tolerance, info.version, info.target_bound, info.in_memory) == ("equal", 1, True, True)
    assert (info.requires, info.conflicts, info.missing) == ((), (), "")


def test_a_pass_can_drop_a_parameter_on_an_accelerator() -> None:
    on_cpu, on_gpu = (describe("prune", Prune, Accelerator(device)) for device in ("cpu", "gpu"))
    assert {p.name for p in on_cpu.parameters} - {p.name for p in on_gpu.parameters} == {"block"}


@pytest.mark.parametrize(
    ("attributes", "missing"),
    [
        ({"libraries": ("onnx",)}, ""),
        ({"libraries": ("onnx", "no-such-lib")}, "no-such-lib is not installed; pip install no-such-lib"),
    ],
)
def test_a_missing_library_is_named_with_the_command_that_installs_it(attributes: dict[str, Any], missing: str) -> None:
    code = type("Needy", (Pass,), {"__doc__": "Needs libraries.", **attributes})
    info = describe("needy", code)
    assert info.missing == missing
    assert info.available == (not missing)


@pytest.mark.parametrize(
    ("attribute", "value", "text"),
    [
        ("depends_on", "hosts", "depends_on of pass 'wrong' is 'hosts'; choose from model, target, host"),
        ("touches", ("name",), "touches of pass 'wrong' is 'name'; choose from names, types, metadata, outputs"),
        ("touches", "outputs", "touches of pass 'wrong' is a text; give a tuple of texts"),
        ("tolerance", "exact", "tolerance of pass 'wrong' is 'exact'; choose from lossless, equal, lossy"),
        ("requires", "name_fix", "requires of pass 'wrong' is a text; give a tuple of texts"),
    ],
)
def test_a_wrong_attribute_is_told(attribute: str, value: object, text: str) -> None:
    code = type("Wrong", (Pass,), {"__doc__": "Counts.", attribute: value})
    with pytest.raises(InputError, match=re.escape(text)):
        describe("wrong", code)


def test_a_quoted_annotation_says_the_form() -> None:
    def quoted(model):
        return model

    quoted.__annotations__["model"] = "'ir.Model'"
    assert form_of(quoted) == "ir"


def test_a_pass_without_docstring_has_no_summary() -> None:
    def mute(model: Any) -> Any:
        return model

    assert describe("mute", mute).summary == ""


def tune(options: onnxruntime.SessionOptions) -> None:
    """A pass as one may write it who has not read what passes take."""


def test_the_session_options_of_onnxruntime_are_no_form_of_a_model() -> None:
    with pytest.raises(InputError, match=r"options of tune is annotated .*; import SessionOptions, a dict, from auto"):
        describe("tune", tune)

    def known(options: SessionOptions) -> None:
        """A pass that takes what it gets."""

    assert describe("known", known).session_only
