"""A sweep: one run for each model of a zoo, each compared with the last good sweep.

What has not changed is answered from the store; a nightly sweep measures every source and every last best anew, so
that nights can be compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.prepare import prepare
from autoopt.engine.run.session import Session, inline
from autoopt.engine.sweeps.nightly import measure_again
from autoopt.engine.sweeps.zoo import ZooItem, check_data, dag_of, free_name, items, listed
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.environment import environment
from autoopt.engine.work.hosts import Opener
from autoopt.errors import AutooptError, InputError
from autoopt.model.candidate import digest_json
from autoopt.observer import SILENT, Observer
from autoopt.report.nights import MISSING, NIGHTS, compare_entry, differences, regressed
from autoopt.results import RunResult
from autoopt.settings import root_of_data, settings
from autoopt.spec import DagSpec
from autoopt.spec.zoo import ZooSpec, load_zoo
from autoopt.store import EventRecord, Store, SweepRecord, open_store
from autoopt.store.owner import is_known_alive, is_known_dead
from autoopt.store.records import RunStatus

Entry = dict[str, Any]
SearchWith = Callable[[Session], RunResult]
"""Carries a prepared run to its result: in threads, or as flow runs."""
MODEL = "sweep model"
"""Kind of the events that say which models of a sweep are done."""
BEGUN = "sweep begun"
"""Kind of the events that say which process carries a sweep out; the last one of a sweep counts."""


@dataclass(frozen=True)
class SweepRequest:
    """One sweep.

    `zoo`: a zoo.yaml or what it says. `dag`: instead of the zoo's own; a model's own stays. `only`: models with this
    tag. `resume`: go on with the last sweep of this zoo as it was asked for; `or_begin`: with a new one, if none was
    interrupted. `nightly`: measure sources and last bests anew. `accept`: what is worse than before counts as good from
    now on. `out`: folder for the best models and the report. `flow_run`: id of the flow run that carries it out and can
    be retried; its `resume` goes on with its own sweep alone. The rest as in `RunRequest`.
    """

    zoo: Any
    dag: str | None = None
    only: str | None = None
    resume: bool = False
    or_begin: bool = False
    flow_run: str = ""
    nightly: bool = False
    accept: bool = False
    out: Path | None = None
    data_root: str | Path | None = None
    home: Path | None = None
    db_url: str | None = None
    workers: int = 2
    search: Mapping[str, Any] = field(default_factory=dict)
    measurement: Mapping[str, Any] = field(default_factory=dict)
    observer: Observer = SILENT
    opener: Opener | None = None


def run_sweep(request: SweepRequest, search: SearchWith = inline) -> dict[str, Any]:
    """Carry a sweep out; returns its document, which is also stored.

    Raises:
        InputError: what the zoo file or a DAG says is wrong, or there is nothing to resume. A model that is not there
            or cannot be read is listed, not raised.
    """
    zoo = load_zoo(request.zoo).with_data_root(root_of_data(request.data_root))
    check_data(zoo)
    home = request.home or settings().home
    with open_store(request.db_url or settings().db_url, home) as store:
        last = _interrupted(request, zoo, store)
        request = _as_before(request, last) if last else request
        found = items(zoo, home, request.only)
        dags = {item.name: dag_of(zoo, item, request.dag) for item in found}
        for spec in dags.values():
            spec.check_files(model=False)
        return Sweep(request, zoo, store, search).carry_out(last, found, dags)


def _identity(zoo: ZooSpec) -> dict[str, Any]:
    """What sweeps are told apart by, besides the zoo's name."""
    return {"zoo": str(Path(zoo.source.folder, Path(zoo.source.file).name))}


def _same(zoo: ZooSpec, store: Store) -> Iterator[SweepRecord]:
    """The sweeps of this zoo, newest first."""
    return (s for s in store.sweeps.all(zoo.name) if s.settings.get("of") == _identity(zoo))


def _interrupted(request: SweepRequest, zoo: ZooSpec, store: Store) -> SweepRecord | None:
    """The sweep to go on with; None for a new one."""
    if not request.resume:
        return None
    ours = (s for s in _same(zoo, store) if not request.flow_run or s.settings.get("flow_run") == request.flow_run)
    last = next(ours, None)
    if last is None or last.status == "finished":
        if request.or_begin:
            return None
        raise InputError(f"no sweep of {zoo.name} was interrupted", where=zoo.source.file)
    owner = _owner(store, last)
    if owner:
        host, _, _, process = [*owner.split("/"), "", "", ""][:4]
        said = f"sweep {last.id} of {zoo.name} is under way (process {process} on {host})"
        raise InputError(said, where=zoo.source.file, remedy="wait until it has ended, or end it first")
    return last


def _owner(store: Store, sweep: SweepRecord) -> str:
    """The process that is known to be at a sweep; empty where there is none. One on another machine is known by the
    leases of its runs."""
    begun = store.events.all(kind=BEGUN, subject=sweep.id)
    owner = str(begun[-1].data["owner"]) if begun else ""
    if sweep.status != "running" or is_known_dead(owner):
        return ""
    if is_known_alive(owner):
        return owner
    claims = (store.claims.acquire("run", run.id) for run in store.runs.all(status="running", sweep=sweep.id))
    return next((str(claim.owner) for claim in claims if claim.state == "held"), "")


ASKED = ("dag", "only", "nightly", "accept")
"""What of a request a sweep's record keeps, and its resume takes over."""


def _as_before(request: SweepRequest, last: SweepRecord) -> SweepRequest:
    kept: dict[str, Any] = {name: last.settings.get(name) for name in ASKED}
    for name, value in kept.items():
        given = getattr(request, name)
        if given and given != value:
            without = "without it" if value in (None, False) else f"with {value}"
            raise InputError(
                f"the sweep that was interrupted was begun {without}",
                where=f"--{name}",
                remedy="leave it out to resume",
            )
    return replace(request, **kept)


@dataclass
class Sweep:
    """One sweep under way."""

    request: SweepRequest
    zoo: ZooSpec
    store: Store
    search: SearchWith

    def carry_out(self, last: SweepRecord | None, found: list[ZooItem], dags: Mapping[str, DagSpec]) -> dict[str, Any]:
        """All models, one after the other, and the comparison; `last`: the sweep to go on with."""
        began = time.monotonic()
        sweep, done = (last, self._done(last)) if last else (self._begin(), {})
        self._take(sweep.id)
        missing = self._missing(sweep.id, found)
        earlier = self._earlier(sweep.id, [*map(_names, found), *map(_names_of, missing)])
        entries: list[Entry] = []
        status: RunStatus = "cancelled"
        self.request.observer.on_sweep_start([*(item.name for item in found), *(entry["name"] for entry in missing)])
        try:
            for item in found:
                entry = done.get(item.name)
                if entry is None:
                    entry = self._model(sweep.id, item, dags[item.name], _entries(_names(item), earlier))
                    event = EventRecord(kind=MODEL, subject=f"{sweep.id}/{item.name}", data=entry)
                    self.store.events.add(event)
                entries.append(entry)
                self.request.observer.on_model_end(entry)
            for entry in missing:
                entry["compared"] = compare_entry(entry, _entries(_names_of(entry), earlier))
                entries.append(entry)
                self.request.observer.on_note(f"{entry['name']}: {entry['reason']}")
                self.request.observer.on_model_end(entry)
            status = "finished"
        except KeyboardInterrupt:
            self.request.observer.on_note("the sweep was cancelled; with --resume it goes on")
            raise
        finally:
            document = self._document(sweep.id, entries, time.monotonic() - began)
            self.store.sweeps.finish(sweep.id, status, document)
        if self.request.out is not None:
            leave(document, self.request.out)
        return document

    def _begin(self) -> SweepRecord:
        asked = {"of": _identity(self.zoo), **{name: getattr(self.request, name) for name in ASKED}}
        asked["flow_run"] = self.request.flow_run
        return self.store.sweeps.create(SweepRecord(id="", name=self.zoo.name, settings=asked))

    def _take(self, sweep: str) -> None:
        """Note that this process carries the sweep out; one that was interrupted is running again."""
        self.store.events.add(EventRecord(kind=BEGUN, subject=sweep, data={"owner": self.store.owner}))
        self.store.sweeps.finish(sweep, "running")

    def _done(self, last: SweepRecord) -> dict[str, Entry]:
        """The models that the interrupted sweep had done."""
        events = self.store.events.all(kind=MODEL, under=last.id)
        return {e.subject.partition("/")[2]: dict(e.data) for e in events}

    def _earlier(self, sweep: str, wanted: Sequence[Names]) -> dict[tuple[str, str], list[tuple[str, Entry]]]:
        """The latest good entries of earlier sweeps by model (see `_key`), newest first, each with its sweep's id."""
        lines = {listed(model) for model in self.zoo.models}
        good: dict[tuple[str, str], list[tuple[str, Entry]]] = {}
        for record in _same(self.zoo, self.store):
            if wanted and all(len(_entries(names, good)) == NIGHTS for names in wanted):
                break
            if record.id == sweep or record.status != "finished" or record.result is None:
                continue
            for entry in record.result["models"]:
                if record.settings.get("accept") or not regressed(entry["compared"]):
                    kept = good.setdefault(_key(entry, lines), [])
                    if len(kept) < NIGHTS:
                        kept.append((record.id, entry))
        return good

    def _missing(self, sweep: str, found: list[ZooItem]) -> list[Entry]:
        """Models that the last finished sweep with the same tag had, and that their line in the zoo file gives no more;
        until that is accepted, or the line is removed."""
        only = self.request.only
        ended = (s for s in _same(self.zoo, self.store) if s.id != sweep and s.status == "finished")
        last = next((s for s in ended if s.settings.get("only") == only and s.result is not None), None)
        if last is None or last.result is None:
            return []
        lines = {listed(model) for _, model in self.zoo.wanted(only)}
        here = {(item.listed, item.called) for item in found}
        paths = {item.shown_path for item in found if not item.reason}
        reasons = {item.listed: item.reason for item in found if item.reason}
        taken = {item.name for item in found}
        missing: list[Entry] = []
        for entry in last.result["models"]:
            line = entry.get("listed")
            accepted = entry["status"] == MISSING and last.settings.get("accept")
            there = (line, entry.get("called")) in here or entry["path"] in paths
            if line in lines and entry.get("found", True) and not there and not accepted:
                kept = {name: entry[name] for name in ("path", "tags", "listed", "called")}
                reason = reasons.get(line) or f"not in {line} any more"
                missing.append(
                    {"name": free_name(entry["name"], taken), **kept, "status": MISSING, "reason": reason, "run": ""}
                    | {"found": True, "environment": dict(environment()), "seconds": 0.0}
                )
        return missing

    def _model(self, sweep: str, item: ZooItem, spec: DagSpec, earlier: list[tuple[str, Entry]]) -> Entry:
        self.request.observer.on_phase(f"model {item.name}")
        self.request.observer.on_model_start(item.name)
        began = time.monotonic()
        entry: Entry = {"name": item.name, "path": item.shown_path, "tags": list(item.entry.spec.tags), "run": ""}
        entry |= {"listed": item.listed, "called": item.called, "found": not item.reason}
        entry["environment"] = dict(environment())
        try:
            if item.reason:
                raise InputError(item.reason)
            entry |= self._run(sweep, item, spec, earlier)
        except InputError as error:
            entry |= {"status": "refused", "reason": str(error)}
        except AutooptError as error:
            entry |= {"status": "failed", "reason": str(error)}
        entry["seconds"] = round(time.monotonic() - began, 3)
        entry["compared"] = compare_entry(entry, earlier)
        self.request.observer.on_note(f"{item.name}: {entry['status']}, {entry['compared']['verdict']}")
        return entry

    def _run(self, sweep: str, item: ZooItem, spec: DagSpec, earlier: list[tuple[str, Entry]]) -> Entry:
        """One model's run; what the entry keeps of it."""
        with prepare(self._run_request(sweep, item, spec)) as session:
            result = session.carry_out(self.search)
            entry = _kept(result)
            entry["objectives"] = [vars(o) for o in session.ctx.goal.objectives]
            entry["environment"] = _environment(session.ctx)
            entry["inputs"] = _inputs(session.ctx)
            if self.request.nightly:
                last = earlier[0][1] if earlier else {}
                entry |= measure_again(session, result, last.get("best"), occasion=f"sweep {sweep}")
            if self.request.out is not None:
                session.export(result, self.request.out / item.name)
            return entry

    def _run_request(self, sweep: str, item: ZooItem, spec: DagSpec) -> RunRequest:
        r = self.request
        return RunRequest(
            dag=spec,
            model=item.path,
            data_root=r.data_root,
            home=r.home,
            db_url=r.db_url,
            workers=r.workers,
            search={**item.entry.spec.search, **r.search},
            measurement=r.measurement,
            sweep=sweep,
            observer=r.observer,
            opener=r.opener,
        )

    def _document(self, sweep: str, entries: list[Entry], seconds: float) -> dict[str, Any]:
        bad = [e["name"] for e in entries if regressed(e["compared"])]
        before = {name: value for name, value in self._last_environment(sweep).items() if name != "hosts"}
        changed = differences(before, environment()) if before else []
        changed += [cause for e in entries for cause in e["compared"]["causes"]]
        return {
            "sweep": sweep,
            "name": self.zoo.name,
            "zoo": _identity(self.zoo)["zoo"],
            "nightly": self.request.nightly,
            "accepted": self.request.accept,
            "models": entries,
            "regressions": bad,
            "improvements": [e["name"] for e in entries if e["compared"]["verdict"] in ("better", "works again")],
            "environment_changes": list(dict.fromkeys(changed)),
            "seconds": round(seconds, 3),
        }

    def _last_environment(self, sweep: str) -> Mapping[str, Any]:
        for record in _same(self.zoo, self.store):
            models = (record.result or {}).get("models") or []
            if record.id != sweep and models:
                return dict(models[-1].get("environment") or {})
        return {}


def _environment(ctx: RunContext) -> dict[str, Any]:
    """That of this interpreter, and the versions on the hosts that a run used."""
    hosts = ctx.hosts.runtimes_of(ctx.plan.spec)
    known = {name: {k: v for k, v in found.items() if k != "cpu"} for name, found in hosts.items()}
    return {**environment(), **({"hosts": known} if known else {})}


def _inputs(ctx: RunContext) -> dict[str, str]:
    """Short digests of what a run was given, by what a user calls it."""
    wanted = [[vars(o) for o in ctx.goal.objectives], [vars(c) for c in ctx.goal.constraints]]
    found = {
        "model": ctx.source.artifact,
        "DAG": ctx.plan.digest,
        "objectives and constraints": digest_json(wanted),
        "evaluation data": ctx.evaluation.digest,
        "calibration data": ctx.calibration.digest,
        "latency data": ctx.latency_data.digest,
        "user script": ctx.script_digest,
    }
    return {name: digest.removeprefix("sha256:")[:8] or "none" for name, digest in found.items()}


def _key(entry: Entry, lines: Collection[str]) -> tuple[str, str]:
    """What tells the models of a zoo apart: the line in the zoo file and the name below it. The name in the sweep,
    which depends on its other models, serves only where that line is not in the file any more."""
    line = str(entry.get("listed", ""))
    return (line, str(entry["called"])) if line in lines else ("", str(entry["name"]))


Names = tuple[str, str, str]
"""Of a model: the line of the zoo file that gives it, its name below that line, its name in the sweep."""


def _names(item: ZooItem) -> Names:
    return item.listed, item.called, item.name


def _names_of(entry: Entry) -> Names:
    return entry["listed"], entry["called"], entry["name"]


def _entries(names: Names, earlier: Mapping[tuple[str, str], list[tuple[str, Entry]]]) -> list[tuple[str, Entry]]:
    listed, called, name = names
    return earlier.get((listed, called)) or earlier.get(("", name), [])


def _kept(result: RunResult) -> Entry:
    document = result.to_json()
    document.pop("pareto")
    status = "ok" if result.best is not None else result.status
    reason = "" if result.best is not None else "; ".join(result.notes)
    return {**document, "status": status, "reason": reason}


def leave(document: Mapping[str, Any], out: Path) -> None:
    """Write `sweep.json` and `sweep.html` into `out`.

    Raises:
        InputError: the folder cannot be written.
    """
    from autoopt.report.sweep import sweep_html

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in (("sweep.json", json.dumps(document, indent=2) + "\n"), ("sweep.html", sweep_html(document))):
            new = out / f".{name}.new"
            new.write_text(text, encoding="utf-8")
            new.replace(out / name)
    except OSError as error:
        raise InputError(f"cannot write the report ({error.strerror})", where=str(out)) from error


def fell_short(document: Mapping[str, Any]) -> bool:
    """Whether a sweep is one to end with exit code 1: a regression, or not a single model to show."""
    nothing = not any(e["status"] == "ok" for e in document["models"])
    return nothing or (bool(document["regressions"]) and not document["accepted"])
