"""Outputs before and after a pass, compared by what the pass promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoopt.passes.verification.output_comparison import HOPELESS, ROUNDINGS, Equivalence, compare_outputs
from autoopt.passes.verification.rounding import RUNS, NoiseSpread

floats = hnp.arrays(np.float32, st.integers(1, 8), elements=st.floats(-1e6, 1e6, width=32))


@given(floats)
@settings(max_examples=30)
def test_a_value_equals_itself_at_every_tolerance(array: Any) -> None:
    for tolerance in ("lossless", "equal", "lossy"):
        found = compare_outputs([array], [array.copy()], tolerance)  # type: ignore[arg-type]  # one of the literals
        assert (found.status, found.max_abs_error) == ("same", 0)


@given(floats, st.floats(1e-2, 1e3))
@settings(max_examples=30)
def test_a_shift_beyond_rounding_is_detected_unless_lossy(array: Any, share: float) -> None:
    shifted = array + np.float32(share * max(1.0, float(np.abs(array).max())))
    assert compare_outputs([array], [shifted], "equal").status == "different"
    assert compare_outputs([array], [shifted], "lossless").status == "different"
    assert compare_outputs([array], [shifted], "lossy").status == "same"


def test_lossy_passes_may_change_sizes_that_depend_on_values() -> None:
    boxes, fewer = np.ones((1, 5, 4), np.float32), np.ones((1, 3, 4), np.float32)
    assert compare_outputs([boxes], [fewer], "lossy", sizes_vary=True).status == "same"
    assert compare_outputs([boxes], [fewer], "lossy").status == "different"
    assert compare_outputs([boxes], [fewer[0]], "lossy", sizes_vary=True).status == "different"


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("before", "after", "tolerance", "status"),
    [
        (f32(1, 2), f32(1, 2.0000002), "equal", "same"),
        (f32(1, 2), f32(1, 2.0000002), "lossless", "different"),
        (f32(1, np.nan), f32(1, np.nan), "lossless", "same"),
        (f32(1, np.inf), f32(1, -np.inf), "equal", "different"),
        (f32(1, 2), f32(1, np.nan), "lossy", "different"),
        (f32(np.nan), f32(1), "lossy", "same"),
        (f32(1, 2), f32(1, 2, 3), "lossy", "different"),
        (f32(1), np.array([1], np.float16), "equal", "different"),
        (f32(1), np.array([1], np.float16), "lossy", "same"),
        (np.arange(5), np.arange(5), "lossless", "same"),
        (np.arange(5), np.arange(5) + 1, "equal", "different"),
        (np.arange(500), np.where(np.arange(500) == 3, 4, np.arange(500)), "equal", "same"),
        (np.arange(500), np.where(np.arange(500) == 3, 4, np.arange(500)), "lossless", "different"),
        (np.array(["a"], object), np.array(["b"], object), "lossless", "different"),
        (np.zeros(0, np.float32), np.zeros(0, np.float32), "equal", "same"),
    ],
)
def test_outputs_are_compared_by_tolerance(before: Any, after: Any, tolerance: Any, status: str) -> None:
    assert compare_outputs([before], [after], tolerance).status == status


@pytest.mark.parametrize(
    ("error", "in_time", "late"), [(1e-5, "different", "same"), (1e-2, "different", "different"), (0.0, "same", "same")]
)
def test_when_time_is_up_fixed_shares_explain_an_error(error: float, in_time: str, late: str) -> None:
    def no_spread(runs: int) -> list[NoiseSpread]:
        return [NoiseSpread(np.zeros(2))]

    for deadline, status in ((math.inf, in_time), (0.0, late)):
        found = compare_outputs([f32(1, 2)], [f32(1, 2 + error)], "equal", no_spread, deadline)
        assert found.status == status


def test_an_error_that_rounding_explains_is_measured_even_when_time_is_up() -> None:
    spreads = [NoiseSpread(np.full(2, 0.1))]
    assert compare_outputs([f32(1, 2)], [f32(1, 2.01)], "equal", lambda runs: spreads, 0.0).status == "same"


@pytest.mark.parametrize(("error", "most_runs"), [(1.0, 2), (1e-4, 20)])
def test_few_runs_with_noise_judge_an_error_far_beyond_rounding(error: float, most_runs: int) -> None:
    asked: list[int] = []

    def tiny_spread(runs: int) -> list[NoiseSpread]:
        asked.append(runs)
        return [NoiseSpread(np.full(2, 1e-5))]

    assert compare_outputs([f32(1, 2)], [f32(1, 2 + error)], "equal", tiny_spread).status == "different"
    assert max(asked) == most_runs


def test_the_number_of_outputs_counts() -> None:
    assert compare_outputs([f32(1)], [f32(1), f32(1)], "lossy").reason == "2 outputs instead of 1"


def judged(error: Any, *spreads: NoiseSpread, tolerance: Any = "equal") -> tuple[Equivalence, list[int]]:
    """The comparison of two outputs that differ by `error` where noise spreads as said, and the runs that it took."""
    asked: list[int] = []

    def measure(runs: int) -> list[NoiseSpread]:
        asked.append(runs)
        return [spreads[min(len(asked), len(spreads)) - 1]]

    before = np.ones(np.shape(error), np.float32)
    return compare_outputs([before], [before + np.asarray(error, np.float32)], tolerance, measure), asked


@given(st.integers(1, ROUNDINGS), hnp.arrays(np.float32, 5, elements=st.floats(1, 2, width=32, exclude_max=True)))
@settings(max_examples=20)
def test_a_few_units_in_the_last_place_need_no_explanation(units: int, array: Any) -> None:
    def never(runs: int) -> list[NoiseSpread]:
        raise AssertionError("rounding is not measured")

    after = (array + np.float32(units * 2.0**-23)).astype(np.float32)
    assert compare_outputs([array], [after], "equal", never).status == "same"


def test_more_runs_may_explain_what_few_do_not() -> None:
    found, asked = judged(
        [1e-4], NoiseSpread(np.zeros(1)), NoiseSpread(np.full(1, 1e-5)), NoiseSpread(np.full(1, 1e-3))
    )
    assert (found.status, tuple(asked)) == ("different", RUNS[:1]), "it is hopeless after the first runs"
    few, more = NoiseSpread(np.full(1, 2e-5)), NoiseSpread(np.full(1, 1e-3))
    found, asked = judged([1e-4], few, few, more)
    assert (found.status, tuple(asked)) == ("same", RUNS)


def test_the_reason_names_the_error_and_what_rounding_explains() -> None:
    found, _ = judged([0.0, 0.5], NoiseSpread(np.full(2, 1e-3)))
    assert found.reason.startswith("output 0: 1 of 2 values off by up to 0.5; rounding explains 0.00")
    assert (found.max_abs_error, found.max_relative_error) == (0.5, 0.5)
    assert HOPELESS * 1e-3 < 0.5
    assert found.to_json() == {
        "status": "different", "tolerance": "equal", "reason": found.reason,
        "max_abs_error": 0.5, "max_relative_error": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "status"), [([0.0, 1.0, 0.0], "same"), ([0.0, 0.0, 1.0], "same"), ([1.0, 1.0, 0.0], "different")]
)
def test_values_that_jump_may_do_so_elsewhere_but_not_more_often(error: list[float], status: str) -> None:
    assert judged(error, NoiseSpread(np.array([0.0, 0.5, 0.0]), jumps=True))[0].status == status


def test_a_spread_that_hides_everything_is_not_believed() -> None:
    """Noise is larger than most roundings are: only a half of a large spread is allowed."""
    assert judged([0.4], NoiseSpread(np.full(1, 1.0)))[0].status == "same"
    assert judged([0.9], NoiseSpread(np.full(1, 1.0)))[0].status == "different"


def test_an_element_that_noise_spared_by_chance_has_a_share_of_the_typical_spread() -> None:
    spread = NoiseSpread(np.array([0.0, 1e-3, 1e-3]))
    assert judged([2e-4, 0, 0], spread)[0].status == "same"
    assert judged([3e-4, 0, 0], spread)[0].status == "different"


def test_sizes_may_differ_where_rounding_changes_them() -> None:
    boxes, fewer = np.ones((5, 4), np.float32), np.ones((4, 4), np.float32)
    for deviation, status in ((None, "same"), (np.zeros((5, 4)), "different")):
        spreads = [NoiseSpread(deviation, jumps=True)]
        found = compare_outputs([boxes], [fewer], "equal", lambda runs, spreads=spreads: spreads)
        assert found.status == status
        assert compare_outputs([boxes], [fewer], "lossless", lambda runs, s=spreads: s).status == "different"
        for others in (2 * boxes, (2 * boxes).astype(np.int64)):  # as many, but in another order
            found = compare_outputs([boxes.astype(others.dtype)], [others], "equal", lambda runs, s=spreads: s)
            assert found.status == status


@pytest.mark.parametrize(("unstable", "status"), [(2, "same"), (1, "different")])
def test_as_many_integers_may_differ_as_rounding_changes(unstable: int, status: str) -> None:
    before, after = np.zeros(10, np.int64), np.array([1, 1, *[0] * 8])
    spread = NoiseSpread(np.array([*[0] * (10 - unstable), *[1] * unstable]))
    found = compare_outputs([before], [after], "equal", lambda runs: [spread])
    assert found.status == status
    assert found.max_relative_error == 0.2
    if status == "different":
        assert found.reason == "output 0: 2 of 10 values differ; rounding explains 1"


def test_each_output_has_its_own_spread() -> None:
    before = [f32(1), f32(1)]
    spreads = [NoiseSpread(np.zeros(1)), NoiseSpread(np.full(1, 0.1))]
    assert compare_outputs(before, [f32(1), f32(1.01)], "equal", lambda runs: spreads).status == "same"
    assert compare_outputs(before, [f32(1.01), f32(1)], "equal", lambda runs: spreads).status == "different"


def test_sequences_of_other_lengths_are_different() -> None:
    found = compare_outputs([[f32(1), f32(2)]], [[f32(1)]], "lossy")
    assert (found.status, found.reason) == ("different", "sequences of another length")


@pytest.mark.parametrize("tolerance", ["lossless", "equal", "lossy"])
def test_maps_are_compared_by_keys_and_values(tolerance: Any) -> None:
    rows = [{"cat": 0.25, "dog": 0.75}]
    assert compare_outputs([rows], [[dict(rows[0])]], tolerance).status == "same"
    renamed = compare_outputs([rows], [[{"cat": 0.25, "cow": 0.75}]], tolerance).status
    assert renamed == ("same" if tolerance == "lossy" else "different")
    assert compare_outputs([rows], [[{"cat": 0.25, "dog": np.nan}]], tolerance).status == "different"
