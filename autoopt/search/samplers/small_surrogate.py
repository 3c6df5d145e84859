"""SmallSurrogateSampler spaces: every point gets its turn, the promising ones first. Light."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from random import Random
from statistics import fmean, pstdev

from autoopt.search.history import History
from autoopt.search.losses import feasible
from autoopt.search.points import PointTable
from autoopt.search.samplers.base import Decision, Stop, Suggestion
from autoopt.search.samplers.initial_points import first_points
from autoopt.search.samplers.tie_breaking import cheapest
from autoopt.search.surrogates.scalarization import may_stop, single_losses, too_little
from autoopt.search.surrogates.small_gaussian_process import SmallGaussianProcess, log_improvement
from autoopt.search.trial import ChainSpace, Cost, Trial
from autoopt.space import Point

LEAST, MOST = 0.05, 0.95
"""No point is held to be feasible, or infeasible, with more certainty than this."""


class SmallSurrogateSampler:
    """Prior points, one point of each chain, then by expected improvement x P(feasible) under a Gaussian process whose
    kernel counts the passes and settings in which two points differ, until all are asked."""

    def __init__(
        self, chains: Sequence[ChainSpace], *, seed: int, threshold: float | None = None, cost: Cost | None = None
    ) -> None:
        self._threshold, self._cost = threshold, cost
        self._pool = PointTable(chains)
        self._first = first_points(chains, len(self._pool.points), seed)
        by_id = {chain.id: chain for chain in chains}
        self._tokens = [_tokens(by_id[chain], point) for chain, point in self._pool.points]
        self._weights = [math.log(max(by_id[chain].weight, 1e-6)) for chain, _ in self._pool.points]

    def next(self, history: History, rng: Random) -> Decision:
        rows = self._pool.rows
        mine = [t for t in history.trials if history.key(t.proposal.chain, t.proposal.point) in rows]
        asked = [rows[history.key(t.proposal.chain, t.proposal.point)] for t in mine]
        free = sorted(set(range(len(self._pool.points))) - set(asked))
        if not free:
            return Stop(f"all {len(self._pool.points)} points are asked")
        for chain, point in self._first:
            if history.find(chain, point) is None:
                return Suggestion(chain, point)
        single = single_losses(mine, history.objectives, rng)
        scores = self._scores(free, asked, mine, single.loss)
        good = [math.nan if t.feedback is None else float(_feasible(t)) for t in mine]
        stopping = may_stop(single, good, len(self._first))
        if self._threshold is not None and stopping and too_little(max(scores), single, self._threshold):
            return Stop(f"no point promises an improvement of {self._threshold:.2%}")
        scores = [score + self._weights[row] for score, row in zip(scores, free, strict=True)]
        return Suggestion(*cheapest([self._pool.points[row] for row in free], scores, history, self._cost, rng))

    def _scores(self, free: list[int], asked: list[int], mine: list[Trial], loss: list[float]) -> list[float]:
        """Of each free row the log of expected improvement x P(feasible)."""
        given = [i for i, value in enumerate(loss) if math.isfinite(value)]
        certain = self._log_feasible(free, asked, mine)
        if len(given) < 2:
            return certain
        shift, scale = fmean(loss[i] for i in given), pstdev([loss[i] for i in given]) or 1.0
        items, y = [asked[i] for i in given], [(loss[i] - shift) / scale for i in given]
        model = SmallGaussianProcess(self._distance)
        model.fit(items, y)
        good = [v for i, v in zip(given, y, strict=True) if _feasible(mine[i])]
        best = min(good or y)
        running = [row for row, trial in zip(asked, mine, strict=True) if trial.feedback is None]
        if running:
            believed = [model.predict(row)[0] for row in running]
            model.fit([*items, *running], [*y, *believed])
            best = min(best, *believed)
        improvement = (log_improvement(*model.predict(row), best) + math.log(scale) for row in free)
        return [i + c for i, c in zip(improvement, certain, strict=True)]

    def _log_feasible(self, free: list[int], asked: list[int], mine: list[Trial]) -> list[float]:
        told = [(row, float(_feasible(t))) for row, t in zip(asked, mine, strict=True) if t.feedback is not None]
        if not told or all(good for _, good in told):
            return [0.0] * len(free)
        base = (sum(good for _, good in told) + 1) / (len(told) + 2)
        model = SmallGaussianProcess(self._distance)
        model.fit([row for row, _ in told], [good - base for _, good in told])
        return [math.log(min(MOST, max(LEAST, base + model.predict(row)[0]))) for row in free]

    def _distance(self, a: int, b: int) -> float:
        return float(len(self._tokens[a] ^ self._tokens[b]))


def _feasible(trial: Trial) -> bool:
    return trial.feedback is not None and feasible(trial.feedback)


def _tokens(chain: ChainSpace, point: Point) -> frozenset[str]:
    settings = {
        f"{node}.{n}={json.dumps(v, sort_keys=True)}" for node, values in point.items() for n, v in values.items()
    }
    return frozenset(settings | {name for _, name in chain.passes} | set(chain.nodes))
