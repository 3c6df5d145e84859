"""The differences between two nights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.engine.sweeps.bisection.factors import INPUTS, changes_between
from autoopt.results import SweepEntry
from autoopt.results.bisection import Factor

VERSIONS = st.dictionaries(st.sampled_from(["onnx", "onnxruntime", "numpy", "autoopt"]), st.sampled_from("12"))
DIGESTS = st.dictionaries(st.sampled_from([*INPUTS, "user script"]), st.sampled_from("ab"))


def entry(libraries: Mapping[str, str], inputs: Mapping[str, str] | None = None, **environment: Any) -> SweepEntry:
    return SweepEntry("m", "ok", environment={"libraries": dict(libraries), **environment}, inputs=inputs or {})


def test_versions_that_changed_can_be_varied() -> None:
    before, after = entry({"onnx": "1", "numpy": "2"}), entry({"onnx": "2", "numpy": "2"})
    changes = changes_between(before, after)
    assert changes.libraries == (Factor("onnx", "1", "2"),)
    assert (changes.inputs, changes.not_varied) == ((), ())


def test_libraries_that_came_or_went_are_only_named() -> None:
    changes = changes_between(entry({"onnx": "1"}), entry({"onnx": "1", "torch": "3"}))
    assert changes.libraries == ()
    assert changes.not_varied == ("torch none -> 3",)


def test_the_version_of_autoopt_itself_cannot_be_varied() -> None:
    changes = changes_between(entry({"autoopt": "1"}), entry({"autoopt": "2"}))
    assert changes.libraries == ()
    assert changes.not_varied == ("autoopt 1 -> 2",)


def test_inputs_that_the_store_has_can_be_varied_and_others_are_named() -> None:
    before = entry({}, {"DAG": "a", "user script": "x"})
    after = entry({}, {"DAG": "b", "user script": "y"})
    changes = changes_between(before, after)
    assert changes.inputs == (Factor("DAG", "a", "b"),)
    assert changes.not_varied == ("user script x -> y",)


@pytest.mark.parametrize("names", [("host",), ("cpu", "host")])
def test_another_machine_is_named(names: tuple[str, ...]) -> None:
    before, after = entry({}, **dict.fromkeys(names, "one")), entry({}, **dict.fromkeys(names, "two"))
    assert changes_between(before, after).not_varied == tuple(f"{name} one -> two" for name in names)


def test_a_release_of_a_run_that_no_sweep_made_has_no_environment_to_compare() -> None:
    released = SweepEntry("m", "ok")
    changes = changes_between(released, entry({"onnx": "1"}, {"DAG": "a"}, host="one"))
    assert changes.libraries == changes.inputs == ()
    assert changes.not_varied == ("onnx none -> 1",)


@given(VERSIONS, VERSIONS, DIGESTS, DIGESTS)
def test_each_difference_is_listed_once_and_nothing_else(
    old: dict[str, str], new: dict[str, str], old_inputs: dict[str, str], new_inputs: dict[str, str]
) -> None:
    changes = changes_between(entry(old, old_inputs), entry(new, new_inputs))
    differing = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    if old_inputs and new_inputs:
        differing |= {name for name in {*old_inputs, *new_inputs} if old_inputs.get(name) != new_inputs.get(name)}
    varied = [factor.name for factor in (*changes.libraries, *changes.inputs)]
    assert len(varied) + len(changes.not_varied) == len(differing)
    assert differing.issuperset(varied)
    assert all(factor.before != factor.after for factor in (*changes.libraries, *changes.inputs))


@given(VERSIONS, DIGESTS)
def test_equal_nights_have_no_difference(versions: dict[str, str], inputs: dict[str, str]) -> None:
    same = entry(versions, inputs, host="one")
    changes = changes_between(same, same)
    assert (changes.libraries, changes.inputs, changes.not_varied) == ((), (), ())
