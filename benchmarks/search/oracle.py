"""What a search could reach at best on synthetic tables: an oracle with the covariance that they are drawn from.

The oracle knows how much passes, values and pairs of them vary, but not their effects, and takes failures for chance.
It asks for the point with the highest expected improvement times the probability that it meets the limit on quality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np

from autoopt.search import ChainSpace, SearchConfig
from autoopt.search.history import History
from autoopt.search.samplers.base import Decision, Suggestion, exhausted
from autoopt.search.study import Study
from autoopt.search.surrogates.gaussian_process import normal_distribution
from autoopt.search.surrogates.models import log_expected_improvement
from autoopt.search.surrogates.multitask import Array
from benchmarks.search.left_out import TRIALS, Found, search
from benchmarks.search.synthetic import LIMIT, effects_in
from benchmarks.search.table import OBJECTIVE, Table

KINDS: Final = ("S", "S, 10 % noise", "S, 30 % failures", "M", "M, 10 % noise", "M, 30 % failures")
"""Tables of `left_out.KINDS` with the effects and the limit of `synthetic.make`."""
HARM_MEAN: Final = 1 / math.sqrt(2 * math.pi)
HARM_VARIANCE: Final = 0.5 - HARM_MEAN**2
"""Of max(0, Z) with a standard normal Z."""
SMALLEST: Final = 1e-12
"""Least variance, for the numerics."""


@dataclass(frozen=True)
class Prior:
    """Of one value of all points: `means` (n,), `covariances` (n, n), and the variance of a measurement's noise."""

    means: Array
    covariances: Array
    noise: float = 0.0

    def given(self, places: Sequence[int], values: Sequence[float], wanted: Array) -> tuple[Array, Array]:
        """The means and the standard deviations of some points after measurements of others."""
        means, variances = self.means[wanted], self.covariances[wanted, wanted]
        if places:
            known = self.covariances[np.ix_(places, places)] + (self.noise + SMALLEST) * np.eye(len(places))
            shared = self.covariances[np.ix_(wanted, places)]
            means = means + shared @ np.linalg.solve(known, np.asarray(values) - self.means[places])
            variances = variances - np.einsum("ij,ji->i", shared, np.linalg.solve(known, shared.T))
        return means, np.sqrt(np.maximum(variances, SMALLEST))


class OracleSampler:
    """Chooses by the exact prior of a synthetic table."""

    def __init__(self, table: Table) -> None:
        self._points = [(chain.id, point) for chain in table.chains for point in chain.space.iterate()]
        self._latency, self._drop = _priors(table.chains, table.noise)

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest a point: random ones until one is feasible, then by what the measurements tell."""
        trials = [history.find(chain, point) for chain, point in self._points]
        left = [place for place, trial in enumerate(trials) if trial is None]
        if not left:
            return exhausted(len(self._points))
        told = {place: trial.feedback for place, trial in enumerate(trials) if trial and trial.feedback}
        latencies = {place: math.log(f.values["latency"]) for place, f in told.items() if "latency" in f.values}
        drops = {place: f.violation for place, f in told.items() if not f.failed}
        chosen = self._best(left, latencies, drops) if latencies else rng.choice(left)
        chain, point = self._points[chosen]
        return Suggestion(chain, point)

    def _best(self, left: list[int], latencies: dict[int, float], drops: dict[int, float]) -> int:
        wanted = np.array(left)
        scores = log_expected_improvement(
            *self._latency.given(list(latencies), list(latencies.values()), wanted), min(latencies.values())
        )
        means, deviations = self._drop.given(list(drops), list(drops.values()), wanted)
        scores += np.log(np.maximum(normal_distribution(-means / deviations), 1e-6))
        return left[int(np.argmax(scores))]


def _priors(chains: Sequence[ChainSpace], noise: float) -> tuple[Prior, Prior]:
    """Of the log latencies and of the violations of the limit on quality."""
    rows = [list(effects_in(chain, point)) for chain in chains for point in chain.space.iterate()]
    columns = {token: place for place, token in enumerate(dict.fromkeys(e.token for row in rows for e in row))}
    speeds, harms = np.zeros((2, len(rows), len(columns)))
    for place, row in enumerate(rows):
        for effect in row:
            speeds[place, columns[effect.token]] = effect.speed
            harms[place, columns[effect.token]] = effect.harm
    drops = Prior(HARM_MEAN * harms.sum(axis=1) - LIMIT, HARM_VARIANCE * harms @ harms.T)
    return Prior(np.zeros(len(rows)), speeds @ speeds.T, noise**2), drops


def oracle(table: Table, seed: int) -> Found:
    """Search with the oracle until a good point."""
    config = SearchConfig(seed=seed, trials=TRIALS, stop_early=False)
    return search(table, Study(config, table.chains, (OBJECTIVE,), OracleSampler(table)), seed)
