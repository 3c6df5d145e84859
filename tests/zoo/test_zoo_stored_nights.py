"""The nights of a zoo in the store: which zoo, which sweeps, which night."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.results import SweepEntry, SweepResult
from autoopt.store import Store, SweepRecord, open_store
from autoopt.store.records import RunStatus
from autoopt.zoo.stored_nights import newest_entries, night_named, stored_nights, zoo_of


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
