"""A sweep: one run for each model of a zoo, each compared with the last good sweep.

Unchanged models are answered from the store. A nightly sweep also measures every source model and every last best model
again, so that nights can be compared.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autoopt.engine.run.output_folder import check_writable
from autoopt.engine.run.session import search_inline
from autoopt.errors import SystemFailure, writing
from autoopt.report.pages import check_page, write_page
from autoopt.report.words.markup import shell_word
from autoopt.results import SweepEntry, SweepResult
from autoopt.settings import root_of_data, settings
from autoopt.spec import DagSpec
from autoopt.spec.zoo import load_zoo
from autoopt.store import Store, SweepRecord, open_store
from autoopt.store.leases import renewed_claim
from autoopt.store.records import RunStatus
from autoopt.working_folder import check_own
from autoopt.zoo.earlier_sweeps import SweepHistory
from autoopt.zoo.lasting_changes import entries_by_model, lasting_regression
from autoopt.zoo.nights import DEFAULT_NIGHTS, stored_nights
from autoopt.zoo.sweep_comparison import EarlierEntry, compare_entry, differences
from autoopt.zoo.sweep_entry import EntryRunner
from autoopt.zoo.sweep_report import sweep_html, write_run_pages
from autoopt.zoo.sweep_request import SearchWith, SweepRequest
from autoopt.zoo.zoo_models import BareModel, ZooItem, check_data, dags_of, items

REPORT, PAGE = "sweep.json", "sweep.html"


def run_sweep(request: SweepRequest, search: SearchWith = search_inline) -> SweepResult:
    """Execute a sweep and store its result.

    Raises:
        InputError: the zoo file or a DAG is wrong, there is nothing to resume, or another process executes the sweep.
            A model that does not exist or cannot be read is listed, not raised.
    """
    began = time.monotonic()
    zoo = load_zoo(request.zoo).with_data_root(root_of_data(request.data_root))
    check_data(zoo)
    if request.out is not None:
        check_report(request.out)
    home = request.home or settings().home
    with open_store(home=home) as store:
        history = SweepHistory(zoo, store)
        record = history.interrupted(request)
        if record is not None:
            request = request.resuming(record)
        models = items(zoo, home, request.only)
        dags = dags_of(zoo, models, request.dag)
        if record is None:
            asked = {"of": history.identity, **request.settings(), "flow_run": request.flow_run}
            record = store.sweeps.create(SweepRecord(id="", name=zoo.name, settings=asked, owner=store.owner))
        else:
            history.claim(record)
        if request.nightly and zoo.night is not None:
            request = replace(request, until=began + zoo.night.minutes * 60)
        with renewed_claim(store, "sweep", record.id):
            return Sweep(request, store, history, record, search).run(models, dags)


class Sweep:
    """A sweep in progress."""

    def __init__(
        self, request: SweepRequest, store: Store, history: SweepHistory, record: SweepRecord, search: SearchWith
    ) -> None:
        self._request, self._store, self._history = request, store, history
        self._id, self._name = record.id, record.name
        self._runner = EntryRunner(request, search, record.id, f"sweep {record.id}")
        self._began = time.monotonic()

    def run(self, models: list[ZooItem], dags: Mapping[str, DagSpec | BareModel]) -> SweepResult:
        """Run the models, one after the other, until the time is up.

        Those that the interrupted sweep had finished are not run again.
        """
        observer = self._request.observer
        finished = self._store.sweeps.entries(self._id)  # of an interrupted attempt at this sweep
        missing = self._history.missing_models(self._id, self._request.only, models)
        all_models: list[ZooItem | SweepEntry] = [*models, *missing]
        earlier = self._history.references(self._id, all_models)
        last = self._history.last_entries(self._id)
        names = [model.name for model in all_models]
        entries: dict[str, SweepEntry] = {}
        observer.on_sweep_start(names)
        try:
            for item in self._ordered(models):
                if item.name in finished:
                    entry = SweepEntry.from_json(finished[item.name])
                elif time.monotonic() < self._request.until:
                    entry = self._run_model(item, dags[item.name], earlier[item.name])
                else:
                    continue
                entries[item.name] = entry
                observer.on_model_end(entry)
            if self._request.nightly:
                self._judge_lasting_changes(entries)
            for entry in missing:
                entries[entry.name] = replace(entry, compared=compare_entry(entry, earlier[entry.name]))
                observer.on_note(f"{entry.name}: {entry.reason}")
                observer.on_model_end(entries[entry.name])
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                observer.on_note(f"cancelled; continue with: autoopt {_continuation(self._request)}")
            self._finish("cancelled", entries, names, last)
            raise
        result = self._finish("finished", entries, names, last)
        self._write_pages(result)
        return result

    def _ordered(self, models: list[ZooItem]) -> list[ZooItem]:
        """The models in the order in which they run: that of the zoo file.

        In a night that may end before all had their turn, those that the last nights left out come first.
        """
        if self._request.until == math.inf:
            return models
        left_out = self._history.nights_left_out(self._id, self._request.only)
        return sorted(models, key=lambda item: -left_out[item.name])

    def _judge_lasting_changes(self, entries: dict[str, SweepEntry]) -> None:
        """Judge models as worse whose history has a lasting change for the worse that no night has told of."""
        past = entries_by_model(stored_nights(self._store, self._name, DEFAULT_NIGHTS))
        for name, entry in entries.items():
            comparison = lasting_regression(past.get(name, ()), entry)
            if comparison is not None:
                entries[name] = replace(entry, compared=comparison)
                self._request.observer.on_model_end(entries[name])

    def _finish(
        self, status: RunStatus, entries: Mapping[str, SweepEntry], names: list[str], last: Mapping[str, SweepEntry]
    ) -> SweepResult:
        """Store the end of the sweep, with its entries in the order of `names`; those without one were not reached."""
        models = [entries[name] for name in names if name in entries]
        result = SweepResult(
            sweep=self._id,
            name=self._name,
            zoo=self._history.identity["zoo"],
            nightly=self._request.nightly,
            accepted=self._request.accept,
            models=tuple(models),
            regressions=tuple(entry.name for entry in models if entry.compared.regressed),
            improvements=tuple(entry.name for entry in models if entry.compared.improved),
            environment_changes=_environment_changes(models, last),
            not_run=tuple(name for name in names if name not in entries),
            seconds=round(time.monotonic() - self._began, 3),
        )
        self._store.sweeps.finish(self._id, status, result.to_json())
        return result

    def _write_pages(self, result: SweepResult) -> None:
        """Write the report and the pages of its runs, if a folder is given."""
        if self._request.out is None:
            return
        in_use = {entry.run for entry in self._history.last_entries("").values()}
        out = self._request.out
        pages = write_run_pages(self._store, result.models, out, in_use)
        page = sweep_html(result, pages, self._store.sweeps.get(self._id).created)
        with writing(out, "cannot write the report"):
            write_page(out / REPORT, json.dumps(result.to_json(), indent=2) + "\n")
            write_page(out / PAGE, page)

    def _run_model(self, item: ZooItem, spec: DagSpec | BareModel, earlier: Sequence[EarlierEntry]) -> SweepEntry:
        """Run a model and record its entry.

        Raises:
            SystemFailure: another process has continued the sweep, because this one did not renew its lease in time.
        """
        if not self._store.claims.renew("sweep", self._id):
            raise SystemFailure(f"sweep {self._id} was continued by another process", where=self._name)
        observer = self._request.observer
        observer.on_phase(f"model {item.name}")
        observer.on_model_start(item.name)
        entry = self._runner.run(item, spec, earlier)
        observer.on_note(f"{item.name}: {entry.status}, {entry.compared.verdict}")
        self._store.sweeps.add_entry(self._id, item.name, entry.to_json())
        return entry


def _continuation(request: SweepRequest) -> str:
    """The command that continues a sweep."""
    return f"{'check' if request.check else 'sweep --resume'} {shell_word(request.zoo)}"


def _environment_changes(models: Sequence[SweepEntry], last: Mapping[str, SweepEntry]) -> tuple[str, ...]:
    """Changes of the environment since the last entries of the models, and since those they are compared with."""
    changes: list[str] = []
    for entry in models:
        before = last.get(entry.name)
        if before is not None and before.environment:
            found = differences(before.environment, entry.environment)
            changes += [change for change in found if not change.startswith("hosts.")]  # only some models use them
        changes += entry.compared.causes
    return tuple(dict.fromkeys(changes))


def check_report(out: Path) -> None:
    """Check before a long sweep that its report may be written to a folder.

    Raises:
        InputError: No folder can be there, or it has a file of that name that autoopt did not write.
    """
    check_writable(out)
    with writing(out, "cannot write the report"):
        check_own(out / REPORT, ',\n  "sweep": "')  # its second field
        check_page(out / PAGE)
