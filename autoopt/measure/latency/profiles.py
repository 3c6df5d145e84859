"""Several profiles of dynamic shapes: latency over them, and the requests they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from autoopt.data.sources.synthetic import read_inputs
from autoopt.errors import InputError, did_you_mean
from autoopt.measure.latency.meter import measure as measure_one
from autoopt.measure.latency.meter import pace_of, quiet_seconds, slow, until_paced
from autoopt.measure.latency.protocol import Protocol
from autoopt.measure.latency.results import Latency
from autoopt.measure.request import Request
from autoopt.metrics import Estimate

SIZES = ("dimensions", "shapes", "ranges")
SUMS = (
    "pairs",
    "set_aside",
    "interrupted",
    "replicas",
    "repeats",
    "source_repeats",
    "effective_repeats",
    "outliers",
    "seconds",
)
"""Details that add up over the profiles."""


def measure(request: Request) -> Latency:
    """Latency metrics, over the profiles of dynamic shapes in the settings where there are any.

    Raises:
        InputError: settings or data that do not fit the model.
        Exception: onnxruntime's, where it refuses the candidate.
    """
    if not request.settings.get("profiles"):
        return measure_one(request)
    protocol = Protocol.of(request.settings)
    return until_paced(
        lambda: over_profiles(request),
        lambda found: found.details["pace"],
        max(quiet_seconds(request), protocol.seconds),
    )


def by_profile(request: Request) -> dict[str, Request]:
    """What is asked for each profile in the settings, by its name: the same with inputs that are made up in its sizes.

    A profile is `{name, dimensions, shapes, ranges, weight}`; without a name its number is its name.

    Raises:
        InputError: something in a profile that is unknown, or that the source model does not have.
    """
    profiles = request.settings["profiles"]
    _check(profiles, (request.source or request.candidate).path)
    settings = {k: v for k, v in request.settings.items() if k != "profiles"}
    sizes = [{k: profile[k] for k in SIZES if k in profile} for profile in profiles]
    return {
        str(profile.get("name", number)): replace(request, data=None, settings={**settings, **sizes[number]})
        for number, profile in enumerate(profiles)
    }


def over_profiles(request: Request) -> Latency:
    """Each profile measured by itself with its share of the time; the result is the weighted geometric mean, and so is
    what the setting `source_ms` is compared with.

    Raises:
        InputError: as `by_profile`.
    """
    profiles = request.settings["profiles"]
    seconds = Protocol.of(request.settings).seconds / len(profiles)
    found: dict[str, Latency] = {}
    for name, one in by_profile(request).items():
        settings = {k: v for k, v in one.settings.items() if k != "source_ms"}
        found[name] = measure_one(replace(one, settings={**settings, "seconds": seconds}))
    weights = np.array([float(p.get("weight", 1.0)) for p in profiles])
    weights = weights / weights.sum()
    return Latency(
        _geometric([f.metrics for f in found.values()], weights),
        _geometric([f.source for f in found.values()], weights),
        _geometric([f.ratios for f in found.values()], weights),
        {
            **_together(request, [f.details for f in found.values()], weights),
            "profiles": {
                name: {
                    **one.details,
                    "metrics": {n: asdict(e) for n, e in one.metrics.items()},
                    "ratios": {n: asdict(e) for n, e in one.ratios.items()},
                }
                for name, one in found.items()
            },
        },
    )


def _together(request: Request, found: Sequence[Mapping[str, Any]], weights: Any) -> dict[str, Any]:
    """How it went over all profiles, under the names that one measurement has."""
    times = [d["source_ms"] for d in found]
    ms = None if None in times else float(np.exp(weights @ np.log(times)))
    pace = pace_of(request, ms)
    return {
        "stopped": ", ".join(dict.fromkeys(d["stopped"] for d in found)),
        **{name: round(sum(d[name] for d in found), 4) for name in SUMS},
        "calm": min(d["calm"] for d in found),
        "warm_up_settled": all(d["warm_up_settled"] for d in found),
        "threads": request.threads,
        "source_refused": next((d["source_refused"] for d in found if d["source_refused"]), ""),
        "busy": any(d["busy"] for d in found),
        "disturbed": any(d["disturbed"] for d in found) or slow(pace),
        "source_ms": ms,
        "pace": None if pace is None else round(pace, 3),
        **({"identical": True} if all(d.get("identical") for d in found) else {}),
    }


def _check(profiles: Any, model: str) -> None:
    if not isinstance(profiles, list) or not all(isinstance(p, dict) for p in profiles):
        raise InputError("must be a list of {name, dimensions, shapes, ranges, weight}", where="profiles")
    inputs, _ = read_inputs(model)
    called = [str(profile.get("name", number)) for number, profile in enumerate(profiles)]
    if len(set(called)) < len(called):
        raise InputError(f"two of them are called {max(called, key=called.count)!r}", where="profiles")
    names = [i.name for i in inputs]
    symbols = sorted({d for i in inputs for d in i.shape or () if isinstance(d, str)})
    for number, profile in enumerate(profiles):
        where = f"profiles[{number}]"
        _known(profile, ("name", *SIZES, "weight"), "setting", where)
        _known(profile.get("dimensions", {}), symbols, "symbolic dimension", f"{where}.dimensions")
        for what in ("shapes", "ranges"):
            _known(profile.get(what, {}), names, "input", f"{where}.{what}")
        weight = profile.get("weight", 1.0)
        if not isinstance(weight, int | float) or not weight > 0:
            raise InputError(f"must be above 0, not {weight!r}", where=f"{where}.weight")


def _known(given: Any, known: Sequence[str], what: str, where: str) -> None:
    if not isinstance(given, dict):
        raise InputError("must be a mapping", where=where)
    for name in given:
        if name not in known:
            remedy = did_you_mean(str(name), known) or f"there are: {', '.join(known) or 'none'}"
            raise InputError(f"no {what} {name!r}", where=where, remedy=remedy)


def _geometric(found: Sequence[Mapping[str, Estimate]], weights: Any) -> dict[str, Estimate]:
    """Weighted geometric means by metric; the profiles' errors are independent, so their squares add up."""
    means: dict[str, Estimate] = {}
    for name in found[0]:
        if not all(name in one for one in found):
            continue
        values, lows, highs = (np.log([getattr(f[name], side) for f in found]) for side in ("value", "low", "high"))
        centre = float(weights @ values)
        down = float(np.sqrt(np.sum((weights * (values - lows)) ** 2)))
        up = float(np.sqrt(np.sum((weights * (highs - values)) ** 2)))
        means[name] = Estimate(*(float(np.exp(v)) for v in (centre, centre - down, centre + up)))
    return means
