"""The nights of a zoo: those in the store, each model over them, lasting changes, models that work only on some."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from statistics import geometric_mean, median

from autoopt.errors import InputError
from autoopt.metrics import Direction, Estimate, is_ratio_metric
from autoopt.results import SweepEntry, SweepResult
from autoopt.results.figures import first_objective, improvement, is_quality
from autoopt.results.sweep import OK, REGRESSIONS
from autoopt.spec.zoo import load_zoo
from autoopt.store import Store, SweepRecord
from autoopt.tuning import CHANGES
from autoopt.zoo.lasting_changes import Dated, StoredNight, change_points, entries_by_model
from autoopt.zoo.sweep_comparison import gain_of, ratio_of

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


@dataclass(frozen=True)
class Night:
    """One night of a zoo, over all its models."""

    sweep: str
    time: float
    host: str
    models: int
    ok: int
    regressions: tuple[str, ...]
    improvements: tuple[str, ...]
    busy: int
    """Number of models that were measured while the machine was busy or unsteady."""
    gain: float | None
    """Geometric mean of the factors by which best models are better than their sources; None if no model has one."""
    changes: tuple[str, ...]
    """Versions and other facts of the environment that changed since the night before."""
    accepted: bool = False
    left_out: int = 0
    """Number of models for which there was no time."""


@dataclass(frozen=True)
class ModelNight:
    """One model in one night; figures that were not measured are None."""

    sweep: str
    time: float
    run: str
    status: str
    verdict: str
    """The comparison with the last good sweep."""
    ratio: Estimate | None = None
    """Best / source, for the first objective."""
    gain: Estimate | None = None
    """The factor by which the best model is better than the source."""
    source: float | None = None
    """The source's value of the first objective."""
    best: float | None = None
    size: float | None = None
    quality: float | None = None
    chain: str = ""


@dataclass(frozen=True)
class LastingChange:
    """A change of level in the history of a model."""

    what: str
    """`gain`: best / source; `source`: the source's own value."""
    sweep: str
    """The first night of the new level."""
    time: float
    factor: float
    """New level / old level."""
    worse: bool


@dataclass(frozen=True)
class ModelHistory:
    """One model over the nights, oldest first."""

    model: str
    metric: str
    """The first objective."""
    quality_metric: str
    nights: tuple[ModelNight, ...]
    changes: tuple[LastingChange, ...] = ()
    flaky: str = ""
    """The reason why the model counts as flaky; empty if it does not."""
    tags: tuple[str, ...] = ()
    """Its tags on the newest night."""

    @property
    def is_worse(self) -> bool:
        """True if it regressed on the last night, has a lasting change for the worse, or is flaky."""
        regressed = self.nights[-1].verdict in REGRESSIONS
        return regressed or bool(self.flaky) or any(change.worse for change in self.changes)


@dataclass(frozen=True)
class ZooHistory:
    """The nights of a zoo and its models, oldest first."""

    zoo: str
    nights: tuple[Night, ...]
    models: tuple[ModelHistory, ...]


def history_of(zoo: str, stored: Sequence[StoredNight], *, worse: bool = False) -> ZooHistory:
    """Summarise the nights of a zoo, which are in order, the oldest first.

    With `worse`, only models that became worse or are flaky.
    """
    histories = [_model_history(name, dated) for name, dated in entries_by_model(stored).items()]
    if worse:
        histories = [past for past in histories if past.is_worse]
    return ZooHistory(zoo, tuple(map(_night, stored)), tuple(histories))


def _night(stored: StoredNight) -> Night:
    result = stored.result
    gains = [gain.value for gain in map(gain_of, result.models) if gain is not None]
    hosts = [str(entry.environment["host"]) for entry in result.models if entry.environment.get("host")]
    return Night(
        sweep=result.sweep,
        time=stored.time,
        host=hosts[0] if hosts else "",
        models=len(result.models),
        ok=sum(entry.status == OK for entry in result.models),
        regressions=result.regressions,
        improvements=result.improvements,
        busy=sum(entry.best is not None and entry.best.measured.busy for entry in result.models),
        gain=geometric_mean(gains) if gains else None,
        changes=result.environment_changes,
        accepted=result.accepted,
        left_out=len(result.not_run),
    )


def _model_history(name: str, entries: Sequence[Dated]) -> ModelHistory:
    """The history of a model from its entries, oldest first."""
    metric, goal, quality = _metrics([entry for _, entry in entries])
    nights = [_model_night(night, entry, metric, quality) for night, entry in entries]
    changes = [*_changes("gain", nights, goal), *_changes("source", nights, goal)]
    changes.sort(key=lambda change: change.time)
    return ModelHistory(
        model=name,
        metric=metric,
        quality_metric=quality,
        nights=tuple(nights),
        changes=tuple(changes),
        flaky=_flaky_reason(nights),
        tags=entries[-1][1].tags,
    )


def _metrics(entries: Sequence[SweepEntry]) -> tuple[str, Direction, str]:
    """The first objective, its goal, and the first quality metric, of the newest night that has them."""
    for entry in reversed(entries):
        if entry.result is not None and entry.best is not None:
            objective = first_objective(entry.result)
            quality = next(filter(is_quality, entry.best.metrics), "")
            return objective.metric, objective.goal, quality
    return "", "minimize", ""


def _model_night(night: StoredNight, entry: SweepEntry, metric: str, quality: str) -> ModelNight:
    identity = (night.result.sweep, night.time, entry.run, entry.status, entry.compared.verdict)
    if entry.result is None or entry.best is None:
        return ModelNight(*identity)
    ratio = ratio_of(entry, metric) if is_ratio_metric(metric) else None
    return ModelNight(
        *identity,
        ratio=ratio,
        gain=None if ratio is None else improvement(metric, ratio),
        source=entry.result.baseline.metrics.get(metric),
        best=entry.best.metrics.get(metric),
        size=entry.best.metrics.get("size"),
        quality=entry.best.metrics.get(quality),
        chain=entry.best.chain,
    )


def _changes(what: str, nights: Sequence[ModelNight], goal: Direction) -> list[LastingChange]:
    """The lasting changes of the ratio or of the source's own value."""
    measured: list[tuple[ModelNight, float]] = []
    for night in nights:
        value = night.source
        if what == "gain":
            value = None if night.ratio is None else night.ratio.value
        if value is not None and value > 0:
            measured.append((night, value))
    changes = []
    for point in change_points([value for _, value in measured]):
        night = measured[point.index][0]
        worse = (point.factor > 1) == (goal == "minimize")
        if abs(math.log(point.factor)) >= math.log1p(CHANGES.relevant):
            changes.append(LastingChange(what, night.sweep, night.time, point.factor, worse))
    return changes


def _flaky_reason(nights: Sequence[ModelNight]) -> str:
    """The reason why a model is flaky: it works on some nights and fails on others, more than once."""
    works = [night.status == OK for night in nights]
    switches = sum(before != after for before, after in pairwise(works))
    if switches < CHANGES.min_switches:
        return ""
    return f"failed on {works.count(False)} of {len(works)} nights, in between it worked"


def relative_values(past: ModelHistory) -> dict[str, float]:
    """The ratio of each night, relative to the median of the model's nights, by the sweep's id."""
    ratios = {night.sweep: night.ratio.value for night in past.nights if night.ratio is not None}
    if not ratios:
        return {}
    middle = median(ratios.values())
    return {sweep: value / middle for sweep, value in ratios.items()}
