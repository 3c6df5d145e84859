"""The nights of a zoo in the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from autoopt.errors import InputError
from autoopt.results import SweepEntry, SweepResult
from autoopt.spec.zoo import load_zoo
from autoopt.store import Store, SweepRecord
from autoopt.zoo.night_history import StoredNight

DEFAULT_NIGHTS = 60


def zoos_with_sweeps(store: Store) -> list[str]:
    """The names of the zoos of which a sweep has ended."""
    return [name for name in store.sweeps.names() if any(one.result for one in store.sweeps.all(name))]


def zoo_of(store: Store, name: str | None) -> str:
    """Return the name of a zoo with sweeps in the store, given its name or file; without one, of the only zoo.

    Raises:
        InputError: No sweep has finished, there is no zoo of that name, or there are several and none is named.
    """
    names = zoos_with_sweeps(store)
    if not names:
        raise InputError("no sweep in this store", remedy="run 'autoopt sweep zoo.yaml'")
    listed = ", ".join(sorted(names))
    if name is None:
        if len(names) == 1:
            return names[0]
        raise InputError("there are several zoos", where="ZOO", remedy=f"name one of {listed}")
    if name not in names and Path(name).is_file():
        name = load_zoo(Path(name)).name
    if name not in names:
        raise InputError(f"no sweep of a zoo {name!r}", where="ZOO", remedy=f"zoos with sweeps: {listed}")
    return name


def finished_sweeps(store: Store, zoo: str | None = None) -> Iterator[SweepRecord]:
    """Yield the finished sweeps of all zoos, or of one, newest first."""
    return (record for record in store.sweeps.all(zoo) if record.status == "finished" and record.result)


def stored_nights(store: Store, zoo: str, limit: int) -> list[StoredNight]:
    """Return the newest finished sweeps of a zoo, oldest first."""
    newest = islice(finished_sweeps(store, zoo), limit)
    return [StoredNight(record.created, SweepResult.from_json(record.result)) for record in newest][::-1]


def night_named(nights: list[StoredNight], name: str) -> SweepResult:
    """Return the night whose sweep's id begins with `name`, or the newest one for `latest`.

    Raises:
        InputError: There is none, or several.
    """
    if name == "latest" and nights:
        return nights[-1].result
    matches = [night.result for night in nights if night.result.sweep.startswith(name)]
    if len(matches) != 1:
        reason = "no night" if not matches else "several nights"
        raise InputError(f"{reason} {name!r}", where="--compare", remedy="see the column 'sweep' of 'autoopt nights'")
    return matches[0]


def newest_entries(store: Store, name: str, zoo: str | None = None) -> dict[str, tuple[str, SweepEntry]]:
    """Find a model in the newest finished sweep that has it, among the last `DEFAULT_NIGHTS` of each zoo.

    Returns:
        The sweep's id and the model's entry, by zoo.
    """
    newest: dict[str, tuple[str, SweepEntry]] = {}
    searched: Counter[str] = Counter()
    for record in finished_sweeps(store, zoo):
        if record.name in newest or searched[record.name] == DEFAULT_NIGHTS:
            continue
        searched[record.name] += 1
        for document in record.result.get("models", ()):
            if document.get("name") == name:
                newest[record.name] = (record.id, SweepEntry.from_json(document))
    return newest
