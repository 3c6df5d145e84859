"""Latency over several profiles of dynamic shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

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

    A profile is `{name, dimensions, shapes, weight}`; its inputs are made up.
    """
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
