"""The quick equivalence check."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from micro_models import MODELS, made
from rewrite_pairs import EQUAL, WRONG, Pair

from autoopt.model import io
from autoopt.passes.base import Pass
from autoopt.passes.verification.equivalence import Reference, compare
from autoopt.passes.verification.output_comparison import compare_outputs
from autoopt.passes.verification.rounding import Spread

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
    def no_spread(runs: int) -> list[Spread]:
        return [Spread(np.zeros(2))]

    for deadline, status in ((math.inf, in_time), (0.0, late)):
        found = compare_outputs([f32(1, 2)], [f32(1, 2 + error)], "equal", no_spread, deadline)
        assert found.status == status


def test_an_error_that_rounding_explains_is_measured_even_when_time_is_up() -> None:
    spreads = [Spread(np.full(2, 0.1))]
    assert compare_outputs([f32(1, 2)], [f32(1, 2.01)], "equal", lambda runs: spreads, 0.0).status == "same"


@pytest.mark.parametrize(("error", "most_runs"), [(1.0, 2), (1e-4, 20)])
def test_few_runs_with_noise_judge_an_error_far_beyond_rounding(error: float, most_runs: int) -> None:
    asked: list[int] = []

    def tiny_spread(runs: int) -> list[Spread]:
        asked.append(runs)
        return [Spread(np.full(2, 1e-5))]

    assert compare_outputs([f32(1, 2)], [f32(1, 2 + error)], "equal", tiny_spread).status == "different"
    assert max(asked) == most_runs


def test_the_number_of_outputs_counts() -> None:
    assert compare_outputs([f32(1)], [f32(1), f32(1)], "lossy").reason == "2 outputs instead of 1"


class Lossless(Pass):
    tolerance = "lossless"


def compared(before: onnx.ModelProto, after: onnx.ModelProto, folder: Path) -> Any:
    paths = [io.save(model, folder / str(i)) for i, model in enumerate((before, after))]
    return compare(Reference(paths[0], before), paths[1], after, Lossless())[0]


def test_a_model_broken_by_the_pass_is_different(tmp_path: Path) -> None:
    found = compared(MODELS["relu_only"](), MODELS["double_names"](), tmp_path)
    assert (found.status, "same node name" in found.reason) == ("different", True)


def test_a_model_that_never_ran_is_not_compared(tmp_path: Path) -> None:
    found = compared(MODELS["double_names"](), MODELS["double_names"](), tmp_path)
    assert (found.status, "input model" in found.reason) == ("not run", True)


def test_models_with_random_operators_are_not_compared(tmp_path: Path) -> None:
    model = made("g (float[2] x) => (float[2] y) { r = RandomNormalLike (x)\n y = Add (x, r) }")
    found = compared(model, model, tmp_path)
    assert (found.status, "RandomNormalLike" in found.reason) == ("not run", True)


class Equal(Pass):
    tolerance = "equal"


def verdict(pair: Pair, folder: Path) -> Any:
    """The result of the check on a pair of models, for a pass that promises equal results."""
    paths = [io.save(model, folder / str(number)) for number, model in enumerate(pair)]
    return compare(Reference(paths[0], pair[0]), paths[1], pair[1], Equal())[0]


@pytest.mark.parametrize("name", EQUAL)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_rewrites_that_only_round_differently_are_the_same(name: str, seed: int, tmp_path_factory: Any) -> None:
    result = verdict(EQUAL[name](np.random.default_rng(seed)), tmp_path_factory.mktemp("equal"))
    assert (result.status, result.reason) == ("same", "")


@pytest.mark.parametrize("name", WRONG)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_real_changes_are_different(name: str, seed: int, tmp_path_factory: Any) -> None:
    result = verdict(WRONG[name](np.random.default_rng(seed)), tmp_path_factory.mktemp("wrong"))
    assert result.status == "different"
