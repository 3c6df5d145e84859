"""The changes between two nights: those that can be varied on this machine, and the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoopt.engine.sweeps.entry import CALIBRATION, DAG, EVALUATION, GOAL, LATENCY, MODEL
from autoopt.report.sweeps.sweep_comparison import differences
from autoopt.results import SweepEntry
from autoopt.results.bisection import Factor

LIBRARIES: Final = "libraries"
"""The entry of an environment with the versions of libraries."""
INPUTS: Final = (MODEL, DAG, GOAL, EVALUATION, CALIBRATION, LATENCY)
"""Inputs of a run that the store can bring back, by their names in a sweep's entry."""


@dataclass(frozen=True)
class Changes:
    """The differences between two entries of a model."""

    libraries: tuple[Factor, ...]
    inputs: tuple[Factor, ...]
    not_varied: tuple[str, ...]
    """Differences that cannot be varied here."""


def changes_between(before: SweepEntry, after: SweepEntry) -> Changes:
    """List what changed between the entries of a model in two sweeps."""
    old, new = _versions(before), _versions(after)
    others: list[str] = []
    if before.environment and after.environment:  # that of a release that no sweep made is not recorded
        others = differences(_surroundings(before), _surroundings(after))
    libraries, other_libraries = _split(_factors(old, new), old.keys() & new.keys() - {"autoopt"})
    changed_inputs: list[Factor] = []
    if before.inputs and after.inputs:
        changed_inputs = _factors(before.inputs, after.inputs)
    inputs, other_inputs = _split(changed_inputs, INPUTS)
    others += [factor.text for factor in (*other_libraries, *other_inputs)]
    return Changes(tuple(libraries), tuple(inputs), tuple(others))


def _split(factors: Sequence[Factor], names: Collection[str]) -> tuple[list[Factor], list[Factor]]:
    """The factors with one of these names, which can be varied here, and the others."""
    varied = [factor for factor in factors if factor.name in names]
    return varied, [factor for factor in factors if factor.name not in names]


def _versions(entry: SweepEntry) -> Mapping[str, str]:
    libraries = entry.environment.get(LIBRARIES)
    if not isinstance(libraries, Mapping):
        return {}
    return {str(name): str(version) for name, version in libraries.items()}


def _surroundings(entry: SweepEntry) -> dict[str, object]:
    """The environment without libraries."""
    return {name: value for name, value in entry.environment.items() if name != LIBRARIES}


def _factors(before: Mapping[str, str], after: Mapping[str, str]) -> list[Factor]:
    factors = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, "none"), after.get(name, "none")
        if old != new:
            factors.append(Factor(name, old, new))
    return factors
