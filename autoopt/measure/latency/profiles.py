"""Several profiles of dynamic shapes: one request for each, and the latency over all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoopt.data.sources.synthetic import read_inputs
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonObject, JsonTypeError, JsonValue, from_json, to_json
from autoopt.measure.latency.reply import is_slow, pace_of
from autoopt.measure.request import EXECUTED_GRAPH, SAME_GRAPH, MeasureReply, MeasureRequest
from autoopt.measure.two_ratios import CONTENTION
from autoopt.metrics import Estimate

SUMS = (
    "pairs",
    "set_aside",
    "interrupted",
    "replicas",
    "repeats",
    "source_repeats",
    "effective_repeats",
    "seconds",
)
"""Details that add up over the profiles."""


@dataclass(frozen=True)
class Profile:
    """One entry of the setting `profiles`: sizes of the inputs, and its weight in the mean."""

    name: str | int = ""
    """Defaults to the entry's number."""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, list[int]] = field(default_factory=dict)
    ranges: Mapping[str, list[float]] = field(default_factory=dict)
    weight: float = 1.0


def read_profiles(request: MeasureRequest) -> tuple[Profile, ...]:
    """Read and check the setting `profiles`.

    Raises:
        InputError: a profile has an unknown field, or names something that the source model does not have.
    """
    inputs = read_inputs((request.source or request.candidate).path).specs
    input_names = []
    symbols: set[str] = set()
    for spec in inputs:
        input_names.append(spec.name)
        symbols.update(size for size in spec.dims if isinstance(size, str))
    profiles: dict[str, Profile] = {}
    for number, entry in enumerate(request.settings.profiles):
        where = f"profiles[{number}]"
        _check_names(entry, ("name", "dimensions", "shapes", "ranges", "weight"), "setting", where)
        _check_names(entry.get("dimensions", {}), sorted(symbols), "symbolic dimension", f"{where}.dimensions")
        _check_names(entry.get("shapes", {}), input_names, "input", f"{where}.shapes")
        _check_names(entry.get("ranges", {}), input_names, "input", f"{where}.ranges")
        try:
            profile = from_json(Profile, entry)
        except JsonTypeError as error:
            raise InputError(str(error), where=where) from None
        if profile.weight <= 0:
            raise InputError(f"must be above 0, not {profile.weight:g}", where=f"{where}.weight")
        name = str(entry.get("name", number))
        if name in profiles:
            raise InputError(f"two profiles have the name {name!r}", where="profiles")
        profiles[name] = replace(profile, name=name)
    return tuple(profiles.values())


def _check_names(entries: JsonValue, names: Collection[str], noun: str, where: str) -> None:
    if not isinstance(entries, Mapping):
        raise InputError("must be a mapping", where=where)
    for name in entries:
        if name not in names:
            remedy = did_you_mean(str(name), names) or f"there are: {', '.join(names) or 'none'}"
            raise InputError(f"no {noun} {name!r}", where=where, remedy=remedy)


def request_for(request: MeasureRequest, profile: Profile) -> MeasureRequest:
    """Make the request for one profile: the same with synthetic inputs of its sizes."""
    settings = replace(
        request.settings,
        profiles=(),
        dimensions=profile.dimensions or request.settings.dimensions,
        shapes=profile.shapes or request.settings.shapes,
        ranges=profile.ranges or request.settings.ranges,
    )
    return replace(request, data=None, settings=settings)


def joint_reply(request: MeasureRequest, replies: Mapping[str, MeasureReply], weights: np.ndarray) -> MeasureReply:
    """Average the replies for one model, by profile."""
    parts: dict[str, JsonValue] = {}
    for name, reply in replies.items():
        parts[name] = {**reply.details, "metrics": to_json(reply.metrics), "ratios": to_json(reply.ratios)}
    details = _joint_details(request, [reply.details for reply in replies.values()], weights)
    return MeasureReply(
        geometric_means([reply.metrics for reply in replies.values()], weights),
        geometric_means([reply.source_metrics for reply in replies.values()], weights),
        geometric_means([reply.ratios for reply in replies.values()], weights),
        {**details, "profiles": parts},
    )


def _joint_details(request: MeasureRequest, parts: Sequence[JsonObject], weights: np.ndarray) -> dict[str, JsonValue]:
    """Summarise the measurements of all profiles under the names that a single measurement has."""
    columns: dict[str, list[JsonValue]] = {name: [part[name] for part in parts] for name in parts[0]}
    times = from_json(list[float | None], columns["source_ms"])
    ms = None
    if None not in times:
        ms = float(np.exp(weights @ np.log(np.array(times, np.float64))))
    pace = pace_of(request, ms)
    details: dict[str, JsonValue] = {"stopped": ", ".join(dict.fromkeys(map(str, columns["stopped"])))}
    for name in SUMS:
        details[name] = round(sum(from_json(list[int | float], columns[name])), 4)
    details |= {
        "calm": min(from_json(list[float], columns["calm"])),
        "threads": request.target.threads,
        "source_refused": next(filter(None, columns["source_refused"]), ""),
        "busy": any(columns["busy"]),
        CONTENTION: max(from_json(list[float], columns[CONTENTION])),
        "disturbed": any(columns["disturbed"]) or is_slow(pace),
        "source_ms": ms,
        "shared_variance": float(weights**2 @ np.array(columns["shared_variance"], np.float64)),
        "pace": None if pace is None else round(pace, 3),
    }
    for name in ("identical", EXECUTED_GRAPH, SAME_GRAPH):
        if name in columns:
            details[name] = columns[name][0]
    return details


def geometric_means(estimates: Sequence[Mapping[str, Estimate]], weights: np.ndarray) -> dict[str, Estimate]:
    """Compute weighted geometric means by metric; the profiles' errors are independent, so their squares add up."""
    means: dict[str, Estimate] = {}
    for name in estimates[0]:
        if not all(name in part for part in estimates):
            continue
        column = [part[name] for part in estimates]
        values = np.log([estimate.value for estimate in column])
        lows = np.log([estimate.low for estimate in column])
        highs = np.log([estimate.high for estimate in column])
        centre = float(weights @ values)
        down = float(np.sqrt(np.sum((weights * (values - lows)) ** 2)))
        up = float(np.sqrt(np.sum((weights * (highs - values)) ** 2)))
        means[name] = Estimate(float(np.exp(centre)), float(np.exp(centre - down)), float(np.exp(centre + up)))
    return means
