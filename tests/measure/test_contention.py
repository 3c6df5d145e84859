"""The error that other programs add to a ratio."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.contention import contention, error_of

RATIOS = st.floats(0.01, 100.0)


def test_two_runnable_threads_on_two_cores_are_one_doubling() -> None:
    assert contention(2.0, 2) == pytest.approx(contention(6.0, 2) / 2)
    assert contention(0.0, 2) == 0


@given(RATIOS)
def test_the_error_of_a_ratio_is_that_of_its_inverse(ratio: float) -> None:
    assert error_of(ratio, 0.1) == pytest.approx(error_of(1 / ratio, 0.1), abs=1e-12)
    assert 0 <= error_of(ratio, 0.1) <= 0.11


def test_a_quiet_machine_leaves_an_error_too() -> None:
    assert 0 < error_of(0.5, 0.0) < error_of(0.5, 0.03) < error_of(0.25, 0.03)


def test_a_model_without_a_gain_is_as_disturbed_as_the_source() -> None:
    assert error_of(1.0, 0.3) == 0
