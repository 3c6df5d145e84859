"""Metrics of signals and of frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.measure.quality.classification import frame_f1
from autoopt.measure.quality.task import measure
from autoopt.measure.quality.vectors import HIGHEST_DB, si_sdr

RNG = np.random.default_rng(0)
CLEAN = RNG.normal(size=(3, 400))
NOISY = CLEAN + 0.3 * RNG.normal(size=CLEAN.shape)


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_si_sdr_does_not_see_the_scale_of_either_signal(one: float, other: float) -> None:
    assert si_sdr([NOISY * one], CLEAN * other) == pytest.approx(si_sdr([NOISY], CLEAN))


def test_si_sdr_of_noise_at_a_right_angle_is_its_ratio() -> None:
    reference = np.array([[1.0, 0.0, 1.0, 0.0]])
    noise = np.array([[0.0, 0.1, 0.0, -0.1]])
    assert si_sdr([reference + noise], reference)[0] == pytest.approx(20.0)
    assert measure("si_sdr", [reference + noise], reference).value == pytest.approx(20.0)


def test_si_sdr_is_that_of_its_definition() -> None:
    for estimate, reference, value in zip(NOISY, CLEAN, si_sdr([NOISY], CLEAN), strict=True):
        target = estimate @ reference / (reference @ reference) * reference
        error = estimate - target
        assert value == pytest.approx(10 * np.log10(target @ target / (error @ error)))


def test_si_sdr_is_finite_for_perfect_silent_and_broken_estimates() -> None:
    assert si_sdr([CLEAN], CLEAN) == pytest.approx(HIGHEST_DB, abs=1)
    assert si_sdr([np.zeros_like(CLEAN)], CLEAN) == pytest.approx(-HIGHEST_DB)
    assert si_sdr([np.full_like(CLEAN, np.nan)], CLEAN) == pytest.approx(-HIGHEST_DB)


def test_silent_labels_do_not_count() -> None:
    labels = CLEAN.copy()
    labels[1] = 0
    assert len(si_sdr([NOISY], labels)) == 2
    with pytest.raises(InputError, match="not silent"):
        si_sdr([NOISY], np.zeros_like(CLEAN))
    with pytest.raises(InputError, match="do not fit"):
        si_sdr([NOISY[:, :9]], CLEAN)


FRAMES = np.array([[1, 1, 0, 0, -1], [0, 1, 0, 0, 1]])
SPEECH = np.array([[0.9, 0.2, 0.8, 0.1, 0.9], [0.1, 0.7, 0.3, 0.2, 0.6]])


def test_frame_f1_counts_frames_of_all_items_and_skips_unlabelled_ones() -> None:
    # Three hits; one positive frame missed, one false alarm.
    expected = 2 * 3 / (2 * 3 + 1 + 1)
    statistic = frame_f1([SPEECH], FRAMES)
    assert statistic(np.array([0, 1])) == pytest.approx(expected)
    assert statistic(np.array([1])) == 1.0


@pytest.mark.parametrize(
    "output",
    [np.log(SPEECH / (1 - SPEECH)), np.stack([1 - SPEECH, SPEECH], axis=-1), (SPEECH >= 0.5).astype(np.int64)],
    ids=["logits", "two scores", "classes"],
)
def test_frame_f1_of_other_forms_of_the_same_output(output: np.ndarray) -> None:
    assert measure("frame_f1", [output], FRAMES).value == pytest.approx(0.75)


def test_frame_f1_of_frames_with_several_labels() -> None:
    truth = RNG.integers(0, 2, (2, 5, 3))
    assert measure("frame_f1", [truth.astype(np.float32)], truth).value == 1.0


def test_frames_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="do not fit"):
        frame_f1([np.zeros((2, 4))], FRAMES)
    with pytest.raises(ValueError, match="positive frames"):
        frame_f1([np.zeros((1, 3))], np.zeros((1, 3)))(np.array([0]))
