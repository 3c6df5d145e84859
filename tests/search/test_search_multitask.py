"""Configurations of a new model, as expected from measurements of other models."""

from __future__ import annotations

import math

import pytest

from autoopt.search.surrogates.multitask import Configuration, MultitaskProcess, TriedConfiguration

CONVOLUTIONAL, DENSE = (2.0, 0.0), (0.0, 2.0)


def static(**values: object) -> Configuration:
    return {"simplify": {}, "static": values}  # type: ignore[dict-item]


def seen(
    features: tuple[float, ...], configuration: Configuration, ratio: float | None, weight: float = 1.0
) -> TriedConfiguration:
    return TriedConfiguration(features, configuration, ratio and math.log(ratio), rejected=ratio is None, weight=weight)


FAST = [seen(CONVOLUTIONAL, static(per_channel=True), 0.5), seen(CONVOLUTIONAL, {"dynamic": {}}, 1.3)]


def ratios(
    observations: list[TriedConfiguration], model: tuple[float, ...], *configurations: Configuration
) -> list[float]:
    return MultitaskProcess(observations).expect(model, configurations).means.tolist()  # type: ignore[no-any-return]


def test_gains_of_a_pass_are_expected_on_other_models_most_on_like_ones() -> None:
    near, far = (ratios(FAST, model, static(per_channel=True))[0] for model in (CONVOLUTIONAL, DENSE))
    assert near < far < 0


def test_a_measurement_of_less_weight_is_believed_less() -> None:
    (sure,), (doubtful,) = (
        ratios([seen(CONVOLUTIONAL, static(), 0.5, weight)], CONVOLUTIONAL, static()) for weight in (1.0, 0.2)
    )
    assert sure < doubtful < 0


def test_what_nobody_tried_promises_nothing() -> None:
    process = MultitaskProcess(FAST)
    assert process.known_effects({"unheard of": {"a": 1}}) == frozenset()
    expectation = process.expect(CONVOLUTIONAL, [{"unheard of": {}}, static(per_channel=True)])
    assert expectation.means[0] == 0
    assert expectation.covariance[0, 0] == pytest.approx(0)
    assert expectation.order([1, 1], 2) == [1, 0]


def test_a_parameter_counts_once_two_of_its_values_were_compared() -> None:
    alone = MultitaskProcess(FAST)
    assert alone.known_effects(static(per_channel=True)) == alone.known_effects(static(per_channel=False))
    compared = MultitaskProcess([*FAST, seen(CONVOLUTIONAL, static(per_channel=False), 0.9)])
    assert compared.known_effects(static(per_channel=True)) != compared.known_effects(static(per_channel=False))
    good, bad = compared.expect(CONVOLUTIONAL, [static(per_channel=True), static(per_channel=False)]).means
    assert good < bad


def test_what_failed_on_like_models_comes_late_however_fast_it_is() -> None:
    observations = [seen(CONVOLUTIONAL, {"dynamic": {}}, 0.8)]
    observations += 4 * [TriedConfiguration(CONVOLUTIONAL, {"static": {}}, math.log(0.5), rejected=True)]
    expectation = MultitaskProcess(observations).expect(CONVOLUTIONAL, [{"static": {}}, {"dynamic": {}}])
    assert expectation.chances[0] < 0.5 < expectation.chances[1]
    assert expectation.order([1, 1], 1) == [1]


def test_the_next_point_differs_from_the_one_before() -> None:
    observations = [seen(CONVOLUTIONAL, {name: {}}, 0.6) for name in ("static", "dynamic")]
    configurations: list[Configuration] = [{"static": {}}, {"static": {"unheard of": 1}}, {"dynamic": {}}]
    order = MultitaskProcess(observations).expect(CONVOLUTIONAL, configurations).order([1, 1, 1], 2)
    assert order == [0, 2]


def test_a_weight_multiplies_what_is_expected() -> None:
    expectation = MultitaskProcess(FAST).expect(CONVOLUTIONAL, [static(per_channel=True), {"dynamic": {}}])
    assert expectation.order([1.0, 1.0], 1) == [0]
    assert expectation.order([0.001, 1.0], 1) == [1]
