"""Earlier sweeps of a zoo."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write
from store_owners import by

from autoopt.errors import InputError
from autoopt.results import EntryComparison, SweepEntry, SweepResult
from autoopt.results.sweep import Release
from autoopt.spec.zoo import ZooSpec, load_zoo
from autoopt.store import SweepRecord, open_store
from autoopt.store.records import ReleaseRecord
from autoopt.zoo.earlier_sweeps import SweepHistory
from autoopt.zoo.sweep_request import SweepRequest
from autoopt.zoo.zoo_models import items

ZOO = "name: z\ndag: dag.yaml\nmodels:\n  - {path: one, tags: [a]}\n  - {path: two}\n"


class Night:
    """A zoo with its store; `add` is an earlier sweep."""

    def __init__(self, folder: Path) -> None:
        for name in ("one", "two"):
            write(mlp(), folder / name)
        (folder / "zoo.yaml").write_text(ZOO)
        self.folder = folder
        self.store = open_store(None, folder / "home")

    @property
    def zoo(self) -> ZooSpec:
        return load_zoo(self.folder / "zoo.yaml")

    @property
    def history(self) -> SweepHistory:
        return SweepHistory(self.zoo, self.store)

    def add(
        self, *entries: SweepEntry, status: Any = "finished", not_run: tuple[str, ...] = (), **settings: Any
    ) -> str:
        settings = {"of": self.history.identity, "only": None, **settings}
        record = self.store.sweeps.create(SweepRecord(id="", name="z", settings=settings))
        self.store.sweeps.finish(
            record.id, status, SweepResult(record.id, "z", models=entries, not_run=not_run).to_json()
        )
        return record.id

    def entry(self, name: str, verdict: str = "same", **fields: Any) -> SweepEntry:
        path = str(self.folder / name / "model.onnx")
        compared = EntryComparison(verdict)
        return SweepEntry(name, "ok", path=path, listed=name, called=name, compared=compared, **fields)

    def good(self, name: str = "one", sweep: str = "now") -> list[tuple[str, str]]:
        model = SweepEntry(name, "ok", listed=name, called=name)
        found = self.history.references(sweep, [model])[name]
        return [(one.sweep, one.entry.name) for one in found]

    def missing(self, sweep: str = "now", only: str | None = None) -> list[SweepEntry]:
        return self.history.missing_models(sweep, only, items(self.zoo, self.folder, only))


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_a_model_is_known_however_many_sweeps_went_without_it(night: Night) -> None:
    sweep = night.add(night.entry("one"))
    for _ in range(40):
        night.add(night.entry("two"))
    assert night.good() == [(sweep, "one")]


def test_regressions_are_not_good_unless_the_sweep_was_accepted(night: Night) -> None:
    night.add(night.entry("one", "worse"))
    assert night.good() == []
    accepted = night.add(night.entry("one", "worse"), accept=True)
    assert night.good() == [(accepted, "one")]


def test_the_current_and_unfinished_sweeps_are_not_earlier_ones(night: Night) -> None:
    current = night.add(night.entry("one"))
    night.add(night.entry("one"), status="cancelled")
    assert night.good(sweep=current) == []


def test_a_model_is_recognized_by_its_line_not_by_its_name(night: Night) -> None:
    sweep = night.add(replace(night.entry("one"), name="one-2"))
    assert night.good() == [(sweep, "one-2")]


def test_a_model_whose_line_changed_is_recognized_by_its_name(night: Night) -> None:
    sweep = night.add(replace(night.entry("one"), listed="elsewhere"))
    assert night.good() == [(sweep, "one")]


def test_only_sweeps_with_the_same_tag_are_compared(night: Night) -> None:
    night.add(replace(night.entry("gone"), listed="one"), only="a")
    assert night.missing() == []
    assert [entry.name for entry in night.missing(only="a")] == ["gone"]


def test_models_that_a_night_left_out_are_missing_since_the_night_that_had_them(night: Night) -> None:
    night.add(night.entry("one"), replace(night.entry("gone"), listed="one"))
    night.add(night.entry("one"), not_run=("gone",))
    assert [entry.name for entry in night.missing()] == ["gone"]
    night.add(night.entry("one"), night.entry("two"), accept=True)
    assert night.missing() == []


def test_nights_that_left_a_model_out_are_counted_up_to_the_one_that_ran_it(night: Night) -> None:
    night.add(not_run=("one", "two"))
    night.add(night.entry("one"), not_run=("two",))
    night.add(not_run=("one", "two"))
    night.add(not_run=("one",), only="a")
    assert night.history.nights_left_out("now", None) == {"one": 1, "two": 3}
    assert night.history.nights_left_out("now", "a") == {"one": 1}
    night.add(night.entry("one"), night.entry("two"))
    assert night.history.nights_left_out("now", None) == {}


def resumed(night: Night, **options: Any) -> SweepRecord | None:
    request = SweepRequest(zoo=night.zoo, resume=True, **options)
    record = night.history.interrupted(request)
    if record is not None:
        night.history.claim(record)
    return record


def test_a_flow_run_resumes_only_its_own_sweep(night: Night) -> None:
    night.add(status="cancelled", flow_run="first")
    assert resumed(night, flow_run="second", or_begin=True) is None
    assert resumed(night, flow_run="first") is not None


def test_a_sweep_of_another_machine_is_resumed_once_its_lease_has_ended(night: Night) -> None:
    record = night.store.sweeps.create(SweepRecord(id="", name="z", settings={"of": night.history.identity}))
    assert by(night.store, "far/1-2/3/4/5").claims.acquire("sweep", record.id)
    with pytest.raises(InputError, match=r"is running \(process 4 on far\); wait until it has ended"):
        resumed(night)
    assert by(night.store, "far/1-2/3/4/5").claims.renew("sweep", record.id, seconds=-1.0)
    assert resumed(night) is not None
    assert not by(night.store, "far/1-2/3/4/5").claims.renew("sweep", record.id)


def test_a_zoo_file_that_was_moved_keeps_its_history(night: Night) -> None:
    sweep = night.add(night.entry("one"), of={"zoo": "/elsewhere/zoo.yaml"})
    assert night.good() == [(sweep, "one")]


def test_a_model_of_a_moved_zoo_with_absolute_paths_is_recognized_by_its_name(night: Night) -> None:
    entry = replace(night.entry("one"), listed="/elsewhere/one/model.onnx", path="/elsewhere/one/model.onnx")
    sweep = night.add(entry, of={"zoo": "/elsewhere/zoo.yaml"})
    assert night.good() == [(sweep, "one")]
    assert night.missing() == []


def test_a_zoo_of_another_name_has_another_history(night: Night) -> None:
    night.add(night.entry("one"))
    (night.folder / "zoo.yaml").write_text(ZOO.replace("name: z", "name: other"))
    assert night.good() == []


def test_a_release_comes_before_good_sweeps_until_a_later_one_is_accepted(night: Night) -> None:
    first = night.add(night.entry("one"))
    release = Release("z", 1, night.entry("one"), first)
    night.store.releases.add(ReleaseRecord(release, None, rolled_back=False, by="ann@forge"))
    second = night.add(night.entry("one"))
    assert [sweep for sweep, _ in night.good()] == [first, second, first]
    assert night.good("two") == []
    accepted = night.add(night.entry("one"), accept=True)
    assert [sweep for sweep, _ in night.good()] == [accepted, second, first]


def test_the_last_entry_of_a_model_that_the_last_sweeps_left_out_is_an_earlier_one(night: Night) -> None:
    def entry(name: str, runtime: str) -> SweepEntry:
        return night.entry(name, environment={"onnxruntime": runtime})

    night.add(entry("one", "1"), entry("two", "1"), entry("gone", "1"))
    night.add(entry("one", "2"), entry("two", "2"))
    night.add(entry("two", "3"), not_run=("one",))
    night.add(entry("one", "4"), only="a")
    last = {name: entry.environment["onnxruntime"] for name, entry in night.history.last_entries("now").items()}
    assert last == {"one": "4", "two": "3"}
