"""The hierarchical model that pools measurements of several candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoopt.measure.intervals.pooling import SCALES, Observation, Pooled, observation, pool
from autoopt.metrics import Estimate
from autoopt.tuning import TIMING

RATIOS = st.floats(0.2, 3.0)
OBSERVATIONS = st.lists(
    st.builds(
        Observation,
        st.sampled_from("abc"),
        st.sampled_from("1234"),
        st.floats(-0.5, 0.5),
        st.floats(0.001, 0.05),
        st.floats(0, 0.001),
    ),
    min_size=1,
    max_size=8,
)
FAST = settings(max_examples=15)


def pooled(values: list[float], half_width: float) -> Estimate:
    """Pool separate measurements of one ratio, each with the same relative half-width."""
    observations = []
    for number, value in enumerate(values):
        estimate = Estimate(value, value * (1 - half_width), value * (1 + half_width))
        observations.append(observation("a", str(number), estimate))
    return pool(observations).estimate("a")


def relative_width(estimate: Estimate) -> float:
    return math.log(estimate.high / estimate.low)


@FAST
@given(OBSERVATIONS, st.floats(0.01, 100))
def test_scaling_all_values_scales_the_estimates(observations: list[Observation], factor: float) -> None:
    scaled = [replace(single, log=single.log + math.log(factor)) for single in observations]
    before, after = pool(observations), pool(scaled)
    for candidate in before.candidates:
        one, two = before.estimate(candidate), after.estimate(candidate)
        expected = (factor * one.low, factor * one.value, factor * one.high)
        assert (two.low, two.value, two.high) == pytest.approx(expected, rel=1e-6)


@FAST
@given(RATIOS, st.integers(1, 6), st.floats(0, 0.1))
def test_equal_values_give_that_value(value: float, count: int, half_width: float) -> None:
    estimate = pooled([value] * count, half_width)
    assert estimate.value == pytest.approx(value, rel=1e-9)
    assert estimate.low < value < estimate.high


@FAST
@given(OBSERVATIONS)
def test_estimates_are_ordered_and_finite(observations: list[Observation]) -> None:
    result = pool(observations)
    assert result.draws.shape == (len(result.draws), len(result.candidates))
    for candidate in result.candidates:
        estimate = result.estimate(candidate)
        assert 0 < estimate.low <= estimate.value <= estimate.high < math.inf


def test_two_measurements_that_agree_are_not_certain() -> None:
    exact = pooled([0.8, 0.8], 0.0)
    assert relative_width(exact) > 0.01
    assert relative_width(pooled([0.8, 0.8], 0.02)) > 0.02


def test_disagreement_widens_the_interval() -> None:
    assert relative_width(pooled([0.7, 0.9], 0.01)) > 4 * relative_width(pooled([0.8, 0.8], 0.01))


@pytest.mark.parametrize(
    ("values", "half_width"),
    [
        ([0.723, 0.767, 0.752, 0.657, 0.635, 0.783, 0.792, 0.692], 0.05),
        ([0.938, 0.927, 0.938, 0.943, 0.886, 0.925, 0.933, 0.953], 0.04),
    ],
)
def test_a_gain_that_all_measurements_show_is_certain(values: list[float], half_width: float) -> None:
    estimate = pooled(values, half_width)
    assert estimate.high < 0.98
    assert min(values) < estimate.value < max(values)


def test_an_error_beyond_the_measurements_is_added() -> None:
    result = pool([observation("a", "1", Estimate(0.5, 0.499, 0.501))])
    assert relative_width(result.estimate("a", beyond=0.1)) > 0.2
    assert result.estimate("a", beyond=0.1).value == result.estimate("a").value


def test_draws_are_seeded() -> None:
    observations = [observation("a", "1", Estimate(0.5, 0.49, 0.51))]
    assert np.array_equal(pool(observations).draws, pool(observations).draws)
    assert not np.array_equal(pool(observations).draws, pool(observations, seed=1).draws)


def test_a_machine_of_unsteady_pace_makes_single_measurements_less_certain() -> None:
    observations = [observation("a", "1", Estimate(0.5, 0.499, 0.501))]
    steady, unsteady = pool(observations), pool(observations, usual=0.03)
    assert relative_width(unsteady.estimate("a")) > 2 * relative_width(steady.estimate("a"))


def contrast_width(result: Pooled) -> float:
    low, high = np.quantile(result.of("a") - result.of("b"), [0.025, 0.975])
    return float(high - low)


def test_candidates_measured_in_turns_are_compared_more_exactly_than_apart() -> None:
    """The rounds differ by 5 %, the candidates within a round by 0.5 %."""
    rng = np.random.default_rng(0)
    in_turns, apart = [], []
    for number in range(4):
        state = float(rng.normal(0, 0.05))
        for candidate, log in (("a", -0.3), ("b", -0.28)):
            single = Observation(candidate, str(number), log + state + float(rng.normal(0, 0.005)), 0.005)
            in_turns.append(single)
            apart.append(replace(single, measurement=f"{candidate}{number}"))
    assert contrast_width(pool(in_turns)) < 0.3 * contrast_width(pool(apart))


def test_an_error_that_measurements_state_as_shared_is_not_in_their_contrast() -> None:
    own = [Observation(candidate, "1", 0.0, 0.05) for candidate in "ab"]
    shared = [replace(single, shared_variance=0.99 * 0.05**2) for single in own]
    assert contrast_width(pool(shared)) < 0.5 * contrast_width(pool(own))
    assert relative_width(pool(shared).estimate("a")) == pytest.approx(relative_width(pool(own).estimate("a")), rel=0.1)


def test_most_of_the_lasting_error_of_two_candidates_is_not_in_their_contrast() -> None:
    biased = [Observation(candidate, candidate, -0.5, 0.005, bias=0.08) for candidate in "ab"]
    result = pool(biased)
    assert contrast_width(result) < 0.6 * math.hypot(*(relative_width(result.estimate(name)) for name in "ab"))
    # A further part of the error of one of them is its own.
    other = [biased[0], replace(biased[1], bias=0.2)]
    assert contrast_width(pool(other)) > 1.5 * contrast_width(result)


def simulate(rng: np.random.Generator, together: float, own: float) -> tuple[dict[str, float], list[Observation]]:
    """Measure three candidates in four rounds, and each once on its own. Returns the true logarithms too."""
    truth = {candidate: float(rng.normal(-0.2, 0.2)) for candidate in "abc"}
    observations = []
    groups = [("abc", str(number)) for number in range(4)] + [(candidate, candidate) for candidate in "abc"]
    for candidates, measurement in groups:
        state = rng.normal(0, together)
        for candidate in candidates:
            log = truth[candidate] + state + rng.normal(0, own) + rng.normal(0, 0.01)
            observations.append(Observation(candidate, measurement, float(log), 0.01))
    return truth, observations


def coverage(scales: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Compute how often the intervals hold the truth: those of candidates, and those of contrasts."""
    rng = np.random.default_rng(1)
    ratios, contrasts = [], []
    for together, own in scales:
        truth, observations = simulate(rng, together, own)
        result = pool(observations)
        for candidate, log in truth.items():
            estimate = result.estimate(candidate)
            ratios.append(estimate.low <= math.exp(log) <= estimate.high)
        low, high = np.quantile(result.of("a") - result.of("b"), [0.025, 0.975])
        contrasts.append(low <= truth["a"] - truth["b"] <= high)
    return float(np.mean(ratios)), float(np.mean(contrasts))


def test_intervals_cover_the_truth_at_their_rate_for_scales_from_the_prior() -> None:
    weights = np.array([scale / (1 + (scale / TIMING.usual_scale) ** 2) for scale in SCALES])
    drawn = np.random.default_rng(2).choice(SCALES, (100, 2), p=weights / weights.sum())
    ratios, contrasts = coverage([(float(together), float(own)) for together, own in drawn])
    assert 0.91 <= ratios <= 0.985
    assert 0.89 <= contrasts <= 1.0


@pytest.mark.parametrize("scales", [(0.001, 0.001), (0.03, 0.005), (0.005, 0.03)])
def test_intervals_cover_the_truth_nearly_at_their_rate_for_each_scale(scales: tuple[float, float]) -> None:
    ratios, contrasts = coverage([scales] * 40)
    assert ratios >= 0.86
    assert contrasts >= 0.84


@pytest.mark.parametrize("count", [1, 5])
def test_an_error_that_is_the_same_each_time_does_not_average_out(count: int) -> None:
    exact = Estimate(0.6, 0.597, 0.603)
    biased = [replace(observation("a", str(number), exact), bias=0.1) for number in range(count)]
    estimate = pool(biased).estimate("a")
    assert estimate.value == pytest.approx(0.6, rel=0.01)
    assert relative_width(estimate) == pytest.approx(2 * 1.96 * 0.1, rel=0.25)


def test_means_are_those_of_the_model_averaged_over_the_grid() -> None:
    """Against the density of the logarithms themselves, without the identities that make it fast."""
    from scipy.stats import multivariate_normal

    seen = [
        Observation("a", "1", -0.10, 0.01, 0.00005), Observation("b", "1", -0.04, 0.02, 0.00003, bias=0.03),
        Observation("a", "2", -0.16, 0.01, 0.00005, bias=0.01), Observation("a", "3", -0.08, 0.03, bias=0.02),
    ]  # fmt: skip
    logs = np.array([one.log for one in seen])
    design = np.array([[one.candidate == name for name in "ab"] for one in seen]).astype(float)
    same = np.array([[one.measurement == other.measurement for other in seen] for one in seen]).astype(float)
    shared = np.array([one.shared_variance for one in seen])
    bias = np.array([one.bias for one in seen])
    of_one = np.array([[one.candidate == other.candidate for other in seen] for one in seen])
    biases = TIMING.common * np.minimum.outer(bias, bias) ** 2 + (1 - TIMING.common) * np.outer(bias, bias) * of_one
    fixed = same * np.sqrt(np.outer(shared, shared)) + biases
    prior = TIMING.wide_prior**2 * design @ design.T
    scores, means = [], []
    for together in SCALES:
        for own in SCALES:
            errors = [one.deviation**2 - one.shared_variance + own**2 for one in seen]
            covariance = prior + np.diag(errors) + fixed + same * together**2
            density = multivariate_normal(np.full(len(seen), logs.mean()), covariance).logpdf(logs)
            scores.append(
                density + sum(math.log(s) - math.log1p((s / TIMING.usual_scale) ** 2) for s in (together, own))
            )
            means.append(
                logs.mean() + TIMING.wide_prior**2 * design.T @ np.linalg.solve(covariance, logs - logs.mean())
            )
    weights = np.exp(np.array(scores) - max(scores))
    expected = weights / weights.sum() @ np.array(means)
    assert pool(seen).means == pytest.approx(expected, rel=1e-6)
