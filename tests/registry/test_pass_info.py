"""Descriptions of passes: parameters by name, checks of values, and the JSON between processes."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.registry import REQUIRED, ParameterInfo, PassInfo, info_from_json, info_to_json
from autoopt.space import IGNORED, Boolean, Categorical, Conditional, ConditionalDefault

ANNOTATIONS: list[tuple[Any, str]] = [
    (int, "int"),
    (str, "str"),
    (type(None), "None"),
    (Literal["a", "b"], "'a' | 'b'"),
    (int | None, "int | None"),
    (list[str], "list[str]"),
    (dict[str, list[int]], "dict[str, list[int]]"),
    (list[Literal["x"] | float], "list['x' | float]"),
    (Any, "Any"),
]


@pytest.mark.parametrize(("annotation", "text"), ANNOTATIONS)
def test_a_type_reads_as_the_author_wrote_it_and_survives_json(annotation: Any, text: str) -> None:
    info = PassInfo("p", "f", "s", (ParameterInfo("x", annotation, REQUIRED),))
    assert info.parameter("x").type == text
    assert through_json(info).parameter("x").type == text


def through_json(info: PassInfo) -> PassInfo:
    return info_from_json(json.loads(json.dumps(info_to_json(info))))


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (int, 3, None),
        (int, True, "must be int, not True"),
        (int, "3", "must be int, not '3'"),
        (float, 3, None),
        (list[str], ["a"], None),
        (list[str], ["a", 1], "must be list[str], not ['a', 1]"),
        (Literal["QInt8", "QUInt8"], "QInt88", "must be 'QInt8' | 'QUInt8', not 'QInt88'; did you mean 'QInt8'?"),
        (Literal["a"], 7, "must be 'a', not 7"),
        (int | None, None, None),
    ],
)
def test_values_are_checked_strictly_by_type(annotation: Any, value: Any, problem: str | None) -> None:
    found = ParameterInfo("x", annotation, REQUIRED).check(value)
    assert (found is None) == (problem is None)
    assert found is None or found.startswith(str(problem))


@pytest.mark.parametrize(
    ("value", "problem"),
    [(0, None), (7, None), (None, None), (-1, "must be at least 0, not -1"), ("4", "must be int | None, not '4'")],
)
def test_numbers_below_the_minimum_are_refused_also_after_json(value: Any, problem: str | None) -> None:
    info = PassInfo("p", "f", "s", (ParameterInfo("x", int | None, REQUIRED, minimum=0),))
    found = through_json(info).parameter("x").check(value)
    assert (found or "").startswith(problem or "")
    assert (found is None) == (problem is None)


def test_objects_of_a_user_script_are_given_by_name() -> None:
    parameter = ParameterInfo("callback", Any, None, category="object")
    assert parameter.check("my_function") is None
    assert parameter.check(None) is None
    assert parameter.check(3) == "must be the name of a function or class in the user script"
    assert ParameterInfo("callback", Any, REQUIRED, category="object").check(None) is not None


def test_an_unknown_parameter_suggests_the_nearest_or_lists_all() -> None:
    info = PassInfo("p", "f", "s", (ParameterInfo("per_channel", bool, False), ParameterInfo("bits", int, 8)))
    for name, remedy in (("per_chanel", "did you mean 'per_channel'?"), ("zzz", "it has: per_channel, bits")):
        with pytest.raises(InputError) as error:
            info.parameter(name)
        assert error.value.remedy == remedy
    with pytest.raises(InputError, match="it has: none"):
        PassInfo("p", "f", "s").parameter("x")


def test_defaults_leave_out_required_parameters() -> None:
    by_mode = ConditionalDefault("mode", {"a": 1}, 2)
    parameters = (
        ParameterInfo("mode", str, "a"),
        ParameterInfo("must", int, REQUIRED),
        ParameterInfo("n", int, by_mode),
    )
    assert PassInfo("p", "f", "s", parameters).defaults == {"mode": "a", "n": by_mode}


SEARCH = Conditional("mode", {"fast": Categorical(1, 2), "slow": IGNORED}, Boolean())
FULL = PassInfo(
    "p",
    "family",
    "summary",
    (
        ParameterInfo("mode", Literal["fast", "slow"], "fast", Categorical("fast", "slow"), "speed or care"),
        ParameterInfo("count", int, ConditionalDefault("mode", {"fast": 1}, 2), SEARCH, unit="blocks"),
        ParameterInfo("file", str, REQUIRED, category="path"),
    ),
    requires=("a",),
    conflicts=("b", "c"),
    tolerance="lossy",
    needs_data=True,
    libraries=("onnx",),
    presets={"mode": "slow", "nested": {"deep": [1, None]}},
    version=7,
    origin="/home/me/passes.py",
)


def test_every_property_survives_json() -> None:
    copy = through_json(FULL)
    assert info_to_json(copy) == info_to_json(FULL)
    for name, value in vars(FULL).items():
        if name != "parameters":
            assert getattr(copy, name) == value
    mode, count, file = copy.parameters
    assert mode == FULL.parameters[0]
    assert file.default is REQUIRED
    assert isinstance(count.default, ConditionalDefault)
    assert count.default.choose({"mode": "fast"}) == 1
    assert isinstance(count.search, Conditional)
    assert count.search.resolve({"mode": "slow"}) is IGNORED


PLAIN = st.sampled_from([int, float, str, bool, type(None), Any])
HINTS = st.recursive(
    PLAIN | st.lists(st.sampled_from(["a", "b", 1, True]), min_size=1, unique_by=repr).map(lambda v: Literal[tuple(v)]),
    lambda inner: inner.map(lambda hint: list[hint]) | inner.map(lambda hint: dict[str, hint]),
    max_leaves=4,
)
"""Type hints of parameters, nested in lists and dicts."""


@given(HINTS)
def test_any_type_of_json_values_survives_json(hint: Any) -> None:
    info = PassInfo("p", "f", "s", (ParameterInfo("x", hint, REQUIRED),))
    copy = through_json(info)
    assert copy.parameter("x").type == info.parameter("x").type
    assert info_to_json(copy) == info_to_json(info)


def test_types_beyond_json_accept_everything() -> None:
    parameter = ParameterInfo("x", set[int], REQUIRED)
    copy = through_json(PassInfo("p", "f", "s", (parameter,))).parameter("x")
    assert copy.type == "Any"
    assert copy.check("anything") is None
