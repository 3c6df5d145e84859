"""Latency over several profiles of dynamic shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from autoopt.data.sources.synthetic import read_inputs
from autoopt.errors import InputError, did_you_mean
from autoopt.measure.latency import measure as measure_one
from autoopt.measure.protocol import Protocol
from autoopt.measure.request import Request
from autoopt.measure.results import Latency
from autoopt.metrics import Estimate


def measure(request: Request) -> Latency:
    """Latency metrics, over the profiles of dynamic shapes in the settings where there are any.

    Raises:
        Exception: onnxruntime's, where it refuses the candidate.
    """
    profiles = request.settings.get("profiles")
    return over_profiles(request, profiles) if profiles else measure_one(request)


def over_profiles(request: Request, profiles: Sequence[Mapping[str, Any]]) -> Latency:
    """Each profile measured by itself with its share of the time; the result is the weighted geometric mean.

    A profile is `{name, dimensions, shapes, ranges, weight}`; its inputs are made up.

    Raises:
        InputError: something in a profile that is unknown, or that the source model does not have.
    """
    _check(profiles, (request.source or request.candidate).path)
    settings = {k: v for k, v in request.settings.items() if k not in ("profiles", "source_ms")}
    seconds = Protocol.of(settings).seconds / len(profiles)
    found: list[Latency] = []
    for profile in profiles:
        sizes = {k: profile[k] for k in ("dimensions", "shapes", "ranges") if k in profile}
        found.append(measure_one(replace(request, data=None, settings={**settings, "seconds": seconds, **sizes})))
    weights = np.array([float(p.get("weight", 1.0)) for p in profiles])
    weights = weights / weights.sum()
    names = [str(p.get("name", number)) for number, p in enumerate(profiles)]
    details = {
        name: {
            **one.details,
            "metrics": {n: asdict(e) for n, e in one.metrics.items()},
            "ratios": {n: asdict(e) for n, e in one.ratios.items()},
        }
        for name, one in zip(names, found, strict=True)
    }
    return Latency(
        _geometric([f.metrics for f in found], weights),
        _geometric([f.source for f in found], weights),
        _geometric([f.ratios for f in found], weights),
        {"profiles": details, "busy": any(f.details["busy"] for f in found), "threads": request.threads},
    )


def _check(profiles: Any, model: str) -> None:
    if not isinstance(profiles, list) or not all(isinstance(p, dict) for p in profiles):
        raise InputError("must be a list of {name, dimensions, shapes, ranges, weight}", where="profiles")
    inputs, _ = read_inputs(model)
    names = [i.name for i in inputs]
    symbols = sorted({d for i in inputs for d in i.shape or () if isinstance(d, str)})
    for number, profile in enumerate(profiles):
        where = f"profiles[{number}]"
        _known(profile, ("name", "dimensions", "shapes", "ranges", "weight"), "setting", where)
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
