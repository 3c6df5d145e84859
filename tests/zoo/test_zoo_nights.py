"""The nights of a zoo in the store, and their history: courses, lasting changes, flaky models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nights_cases import DAY, FIRST, entry, nights_of, noisy

from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.results import SweepEntry, SweepResult
from autoopt.store import Store, SweepRecord, open_store
from autoopt.store.records import RunStatus
from autoopt.zoo.lasting_changes import StoredNight
from autoopt.zoo.nights import history_of, newest_entries, night_named, relative_values, stored_nights, zoo_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(None, tmp_path / "home")


def add_night(store: Store, zoo: str, status: RunStatus = "finished") -> str:
    sweep = store.sweeps.create(SweepRecord(id="", name=zoo)).id
    store.sweeps.finish(sweep, status, SweepResult(sweep=sweep, name=zoo, models=(SweepEntry("cnn", "ok"),)).to_json())
    return sweep


def test_the_only_zoo_needs_no_name(store: Store) -> None:
    with pytest.raises(InputError, match="no sweep in this store"):
        zoo_of(store, None)
    add_night(store, "a")
    assert zoo_of(store, None) == zoo_of(store, "a") == "a"
    add_night(store, "b")
    with pytest.raises(InputError, match="ZOO: there are several zoos; name one of a, b"):
        zoo_of(store, None)
    with pytest.raises(InputError, match="ZOO: no sweep of a zoo 'c'; zoos with sweeps: a, b"):
        zoo_of(store, "c")


def test_a_zoo_may_be_named_by_its_file(store: Store, tmp_path: Path) -> None:
    add_night(store, "a")
    file = tmp_path / "zoo.yaml"
    file.write_text("name: a\nmodels: [one.onnx]\n")
    assert zoo_of(store, str(file)) == "a"


def test_the_newest_finished_nights_come_oldest_first(store: Store) -> None:
    sweeps = [add_night(store, "a") for _ in range(3)]
    add_night(store, "a", status="cancelled")
    add_night(store, "b")
    assert [night.result.sweep for night in stored_nights(store, "a", limit=2)] == sweeps[1:]


def test_a_night_is_named_by_the_beginning_of_its_sweep(store: Store) -> None:
    sweeps = [add_night(store, "a") for _ in range(2)]
    nights = stored_nights(store, "a", limit=9)
    assert night_named(nights, sweeps[0]).sweep == sweeps[0]
    assert night_named(nights, "latest").sweep == sweeps[1]
    with pytest.raises(InputError, match="--compare: no night 'zz'; see the column 'sweep'"):
        night_named(nights, "zz")
    with pytest.raises(InputError, match="--compare: several nights ''"):
        night_named(nights, "")


def test_a_model_is_taken_from_the_newest_finished_sweep_that_has_it(store: Store) -> None:
    sweeps = [add_night(store, "a"), add_night(store, "b")]
    only = store.sweeps.create(SweepRecord(id="", name="a")).id
    store.sweeps.finish(only, "finished", SweepResult(only, "a", models=(SweepEntry("mlp", "ok"),)).to_json())
    add_night(store, "a", status="cancelled")
    assert {zoo: sweep for zoo, (sweep, _) in newest_entries(store, "cnn").items()} == {"a": sweeps[0], "b": sweeps[1]}
    assert list(newest_entries(store, "cnn", "b")) == ["b"]
    assert newest_entries(store, "gru") == {}


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
