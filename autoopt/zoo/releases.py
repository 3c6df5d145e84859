"""Releases: promote a model of a zoo, roll back, and look up what is released.

The store keeps each promotion and each rollback, with the release that is in use from then on.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from autoopt.engine.run.package import Package
from autoopt.engine.tools.stored_models import package_of
from autoopt.errors import InputError
from autoopt.owner import process_text
from autoopt.report.table import Table
from autoopt.report.words.formatting import day_text, short
from autoopt.report.words.steps import chain_text
from autoopt.report.words.verdict import gains
from autoopt.results import SweepEntry
from autoopt.results.sweep import OK, Release
from autoopt.store import RunRecord, Store
from autoopt.store.leases import renewed_claim
from autoopt.store.records import ReleaseRecord
from autoopt.zoo.nights import newest_entries
from autoopt.zoo.release_places import absolute, publish


@dataclass(frozen=True)
class ReleaseRow:
    """A release and its state."""

    release: Release
    current: bool
    taken_back_by: str = ""
    """User and host that rolled it back last; empty if nobody has."""


@dataclass(frozen=True)
class ReleaseHistory:
    """The promotions and rollbacks of one model, oldest first."""

    steps: tuple[ReleaseRecord, ...] = ()

    @property
    def current(self) -> Release | None:
        """The release in use."""
        return self.steps[-1].release if self.steps else None

    @property
    def since(self) -> float:
        """The time from which the current release is in use."""
        return self.steps[-1].time

    @property
    def promoted(self) -> Mapping[int, Release]:
        """All releases by number."""
        return {step.release.number: step.release for step in self.steps if not step.rolled_back}


@dataclass(frozen=True)
class Promotion:
    """The model to promote, as the command line names it."""

    what: str
    """A model in the newest sweep of its zoo, `MODEL` or `ZOO/MODEL`, or the id of a run."""
    trial: int | None = None
    target: str | None = None
    name: str | None = None
    """`ZOO/MODEL`: what a run is a release of that no sweep made."""
    places: tuple[str, ...] = ()
    """Places to publish at; see `release_places`. Empty: those of its last release."""


def release_histories(store: Store, zoo: str) -> dict[str, ReleaseHistory]:
    """The releases of a zoo by the model's name."""
    return _histories(store, zoo).get(zoo, {})


def _histories(store: Store, zoo: str | None = None) -> dict[str, dict[str, ReleaseHistory]]:
    """The releases of all zoos, or of one, by the zoo's name and the model's name."""
    histories: dict[str, dict[str, ReleaseHistory]] = {}
    for record in store.releases.all(zoo):
        release = record.release
        of_zoo = histories.setdefault(release.zoo, {})
        before = of_zoo.get(release.entry.name, ReleaseHistory())
        if not record.rolled_back:
            record = replace(record, release=replace(release, time=record.time))
        of_zoo[release.entry.name] = ReleaseHistory((*before.steps, record))
    return histories


def promote(store: Store, promotion: Promotion) -> Release:
    """Release a model: publish its package and record it.

    Raises:
        InputError: there is no such model or run, it is released already, it failed or regressed in the newest sweep,
            a place cannot be written, or another process is releasing this model.
    """
    release, run = _chosen(store, promotion)
    package = package_of(store, run, promotion.trial, promotion.target)
    release = replace(release, entry=_with_model(release.entry, package, promotion))
    with _alone(store, f"{release.zoo}/{release.entry.name}"):
        history = release_histories(store, release.zoo).get(release.entry.name, ReleaseHistory())
        before = history.current
        places = tuple(map(absolute, promotion.places))
        if before is not None:
            places = places or before.places
            if before.model.candidate.key == package.model.candidate.key and set(places) <= set(before.places):
                raise InputError("is released already", where=before.name)
        release = replace(
            release,
            number=len(history.promoted) + 1,
            trial=promotion.trial,
            target=promotion.target,
            places=places,
            replaced=0 if before is None else before.number,
            by=_user(),
        )
        publish(store, package, release, places)
        store.releases.add(ReleaseRecord(release, run.id, rolled_back=False, by=release.by))
        return release


def roll_back(store: Store, name: str) -> tuple[Release, Release]:
    """Release again what was released before; it is published at the places of the current release.

    Returns:
        The release that was taken back, and the one that is in use now.

    Raises:
        InputError: the model has no release, or no earlier one, or another process is releasing it.
    """
    zoo, name = _released(store, name)
    with _alone(store, f"{zoo}/{name}"):
        history = release_histories(store, zoo)[name]
        current = history.current
        assert current is not None, "a history has a step"
        before = history.promoted.get(current.replaced)
        if before is None:
            raise InputError(f"release {current.name} is the first one", where=name, remedy="promote another model")
        before = replace(before, places=current.places)
        run = store.runs.get(before.entry.run)
        package = package_of(store, run, before.trial, before.target)
        publish(store, package, before, current.places)
        store.releases.add(ReleaseRecord(before, run.id, rolled_back=True, by=_user()))
        return current, before


def _released(store: Store, text: str) -> tuple[str, str]:
    """The zoo and the name of a released model that is named as `MODEL` or `ZOO/MODEL`.

    Raises:
        InputError: no zoo has released it, or several have.
    """
    zoo, name = _split_name(text)
    zoos = [title for title, models in sorted(_histories(store, zoo).items()) if name in models]
    if not zoos:
        raise InputError(f"no release of a model {name!r}", where="MODEL", remedy="see 'autoopt promote --list'")
    if len(zoos) > 1:
        reason = f"several zoos have released {name!r}: {', '.join(zoos)}"
        raise InputError(reason, where="MODEL", remedy="write ZOO/MODEL")
    return zoos[0], name


def release_rows(store: Store) -> list[ReleaseRow]:
    """List all releases: models together, the newest release of each first."""
    rows: list[ReleaseRow] = []
    for _, models in sorted(_histories(store).items()):
        for history in models.values():
            rows += _rows_of(history)
    return rows


def _rows_of(history: ReleaseHistory) -> Iterator[ReleaseRow]:
    """The releases of one model, newest first."""
    taken_back: dict[int, str] = {}
    for before, step in pairwise(history.steps):
        if step.rolled_back:
            taken_back[before.release.number] = step.by
    for number, release in sorted(history.promoted.items(), reverse=True):
        current = history.current
        if current is not None and current.number == number:
            yield ReleaseRow(current, True, taken_back.get(number, ""))  # a rollback may have changed its places
        else:
            yield ReleaseRow(release, False, taken_back.get(number, ""))


@contextmanager
def _alone(store: Store, model: str) -> Iterator[None]:
    """Keep other promotions and rollbacks of a model, `zoo/model`, away during the block.

    Raises:
        InputError: another process is at it.
    """
    claim = store.claims.acquire("release", model)
    if not claim:
        reason = f"{process_text(claim.owner or '')} is promoting or rolling back this model now"
        raise InputError(reason, where=model, remedy="try again when that has ended")
    try:
        with renewed_claim(store, "release", model):
            yield
    finally:
        store.claims.release("release", model)


def _split_name(text: str) -> tuple[str | None, str]:
    """The zoo and the model's name of `ZOO/MODEL` or `MODEL`."""
    zoo, slash, name = text.partition("/")
    return (zoo, name) if slash else (None, text)


def _chosen(store: Store, promotion: Promotion) -> tuple[Release, RunRecord]:
    """The entry to release without the fields that every release gets, and the run that made the model."""
    zoo, name = _split_name(promotion.what)
    release = _of_newest_sweep(store, name, zoo)
    if release is not None:
        return release, store.runs.get(release.entry.run)
    if not store.runs.exists(name):
        remedy = "name a model as 'autoopt nights' lists it, or a run as 'autoopt runs' does"
        raise InputError(f"no model or run {name!r}", where="MODEL", remedy=remedy)
    run = store.runs.get(name)
    return _of_run(store, run, promotion), run


def _of_newest_sweep(store: Store, name: str, zoo: str | None) -> Release | None:
    """The model in the newest finished sweep that has it."""
    entries = newest_entries(store, name, zoo)
    matches = [Release(title, 0, entry, sweep) for title, (sweep, entry) in entries.items()]
    if len(matches) > 1:
        zoos = ", ".join(match.zoo for match in matches)
        raise InputError(f"several zoos have a model {name!r}: {zoos}", where="MODEL", remedy="write ZOO/MODEL")
    for match in matches:
        entry = match.entry
        if entry.status != OK or entry.compared.regressed:
            outcome = entry.compared.verdict if entry.status == OK else entry.status
            reason = f"{name} is {outcome!r} in the newest sweep ({match.sweep}), so it is not released"
            raise InputError(reason, where="MODEL", remedy="name a run instead, see 'autoopt runs'")
        return match
    return None


def _of_run(store: Store, run: RunRecord, promotion: Promotion) -> Release:
    """A run as a release: its entry in the newest sweep that has it, or a new one."""
    zoo, name = _split_name(promotion.name or "")
    for record in store.sweeps.all(zoo):
        for document in record.result.get("models", ()):
            if document.get("run") == run.id:
                return Release(record.name, 0, SweepEntry.from_json(document), record.id)
    if zoo is None:
        remedy = "add --name ZOO/MODEL: what it is a release of"
        raise InputError(f"run {run.id} belongs to no sweep", where="RUN", remedy=remedy)
    return Release(zoo, 0, SweepEntry(name, OK))


def _with_model(entry: SweepEntry, package: Package, promotion: Promotion) -> SweepEntry:
    """The entry with the model to release as its best; that of a sweep keeps the figures of its night."""
    if promotion.name is not None:
        entry = replace(entry, name=_split_name(promotion.name)[1])
    if entry.best is not None and entry.best.candidate.key == package.model.candidate.key:
        return replace(entry, last_best=None)
    result = replace(package.result, best=package.model, front=(), targets=(), choice=None)
    return replace(entry, status=OK, reason="", result=result, last_best=None)


def _user() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def release_text(release: Release) -> str:
    """`production/cnn 3: 2.3x faster, accuracy unchanged (fold -> static), published to models/cnn`."""
    result, chain = release.entry.result, release.model.short_chain
    text = f"{release.name}: {chain}"
    if result is not None:
        text = f"{release.name}: {', '.join(gains(result, release.model)) or 'no figures'} ({chain})"
    if release.places:
        text += f", published to {', '.join(release.places)}"
    return text


def releases_table(rows: Sequence[ReleaseRow]) -> Table:
    """One row for each release, newest first, models together."""
    cells = []
    for row in rows:
        release = row.release
        state = "earlier"
        if row.current:
            state = "released"
        elif row.taken_back_by:
            state = f"rolled back by {row.taken_back_by}"
        answer = chain_text(release.model)
        if release.entry.result is not None:
            answer = ", ".join(gains(release.entry.result, release.model)) or answer
        run = short(release.entry.run)
        if release.trial is not None:
            run += f" trial {release.trial}"
        places = ", ".join(release.places) or "-"
        model = f"{release.zoo}/{release.entry.name}"
        cells.append((model, str(release.number), state, day_text(release.time), release.by, answer, run, places))
    return Table(("model", "release", "state", "promoted", "by", "result", "run", "places"), tuple(cells))
