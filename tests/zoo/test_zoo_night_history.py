"""The history of a zoo: nights, courses, lasting changes, flaky models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nights_cases import DAY, FIRST, entry, nights_of, noisy

from autoopt.json_codec import to_json
from autoopt.results import SweepResult
from autoopt.zoo.night_history import StoredNight, history_of, relative_values


def test_a_night_counts_its_models_and_averages_their_ratios() -> None:
    [night] = history_of("production", nights_of({"cnn": [0.25], "mlp": [1.0], "bad": [None]})).nights
    assert (night.models, night.ok, night.host, night.time) == (3, 2, "forge", FIRST)
    assert night.gain == pytest.approx(2.0)


def test_a_course_holds_the_figures_of_each_night() -> None:
    [course] = history_of("production", nights_of({"cnn": [0.5, None, 0.6]})).models
    assert (course.metric, course.quality_metric) == ("latency_p50", "accuracy")
    assert [night.status for night in course.nights] == ["ok", "failed", "ok"]
    last = course.nights[-1]
    assert (last.source, last.best, last.size, last.quality) == (2.0, 1.2, 1000.0, 0.9)
    assert relative_values(course) == {
        "000000000000": pytest.approx(0.909, abs=1e-3),
        "000000000002": pytest.approx(1.09, abs=1e-3),
    }
    assert to_json(course)


def test_a_change_of_the_source_is_told_apart() -> None:
    nights = []
    for number in range(16):
        source = 2.0 if number < 10 else 1.5
        result = SweepResult(sweep=f"{number:012d}", models=(entry("cnn", noisy(0.5, 16)[number], source=source),))
        nights.append(StoredNight(FIRST + number * DAY, result))
    [change] = history_of("production", nights).models[0].changes
    assert (change.what, change.worse, change.sweep) == ("source", False, "000000000010")


def test_a_model_that_fails_now_and_then_is_flaky() -> None:
    series = {"cnn": [0.5, None, 0.5, 0.5, None, 0.5], "gone": [0.5, 0.5, 0.5, 0.5, None, None]}
    cnn, gone = history_of("production", nights_of(series)).models
    assert cnn.flaky == "failed on 2 of 6 nights, in between it worked"
    assert not gone.flaky


def test_a_model_without_a_result_has_no_metric() -> None:
    nights = nights_of({"bad": [None, None]})
    nights[1] = replace(nights[1], result=replace(nights[1].result, regressions=("bad",)))
    history = history_of("production", nights)
    assert history.nights[1].regressions == ("bad",)
    assert (history.models[0].metric, history.nights[0].gain) == ("", None)


def test_models_that_became_worse_can_be_chosen() -> None:
    nights = nights_of({"cnn": [0.5] * 6, "flaky": [0.5, None] * 3})
    assert [past.model for past in history_of("production", nights).models] == ["cnn", "flaky"]
    assert [past.model for past in history_of("production", nights, worse=True).models] == ["flaky"]
