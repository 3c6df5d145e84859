"""The surrogate sampler of small spaces, in plain Python: every point gets its turn, the promising ones first."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from random import Random
from statistics import fmean, pstdev
from typing import Final

from autoopt.search.history import History
from autoopt.search.losses import feasible
from autoopt.search.points import PointTable
from autoopt.search.samplers.base import Decision, Stop, Suggestion
from autoopt.search.samplers.initial_points import first_untried, initial_points
from autoopt.search.samplers.tie_breaking import cheapest
from autoopt.search.surrogates.scalarization import improvement_below, may_stop, single_losses
from autoopt.search.surrogates.small_gaussian_process import SmallGaussianProcess, log_expected_improvement
from autoopt.search.trial import UNASKED, ChainSpace, Cost, Proposal, Trial
from autoopt.space import Point

MIN_CERTAINTY: Final = 0.05
MAX_CERTAINTY: Final = 0.95
"""Bounds of P(feasible): a few trials allow no more certainty than this."""


class SmallSurrogateSampler:
    """Suggests prior points, one point of each chain, then by expected improvement times P(feasible).

    The Gaussian process has a kernel that counts the passes and settings in which two points differ. Expected
    improvement is that of D. R. Jones, M. Schonlau, W. J. Welch: Efficient global optimization of expensive black-box
    functions, 1998. A running point counts as what the model predicts of it (D. Ginsbourger, R. Le Riche, L. Carraro:
    Kriging is well-suited to parallelize optimization, 2010).
    """

    def __init__(
        self, chains: Sequence[ChainSpace], *, seed: int, threshold: float | None = None, cost: Cost | None = None
    ) -> None:
        self._threshold = threshold
        self._cost = cost
        self._table = PointTable(chains)
        self._initial = initial_points(chains, len(self._table.points), seed)
        by_id = {chain.id: chain for chain in chains}
        self._tokens: list[frozenset[str]] = []
        self._log_weights: list[float] = []
        for chain, point in self._table.points:
            self._tokens.append(_tokens(by_id[chain], point))
            self._log_weights.append(math.log(max(by_id[chain].weight, 1e-6)))

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest an initial point, or the point of the highest score."""
        trials: list[Trial] = []
        asked: list[int] = []
        for trial in history.trials:
            row = self._table.rows.get(history.key(trial.proposal.chain, trial.proposal.point))
            if row is not None:
                trials.append(trial)
                asked.append(row)
        free, repeats = self._table.split(asked, history)
        if not free:
            return Stop(f"all {len(self._table.points)} points tried")
        count = len(trials)
        for row, feedback in repeats:
            trials.append(Trial(Proposal(UNASKED, *self._table.points[row]), feedback))
            asked.append(row)
        initial = first_untried(self._initial, history)
        if initial is not None:
            return Suggestion(*initial)
        single = single_losses(trials, history.objectives, rng)
        scores = self._scores(free, asked, trials, single.loss)
        threshold = self._threshold
        stop_allowed = may_stop(single, trials, count, len(self._initial))
        if threshold is not None and stop_allowed and improvement_below(threshold, max(scores), single):
            return Stop(f"no remaining point is expected to improve by {threshold:.2%}")
        points = []
        weighted = []
        for score, row in zip(scores, free, strict=True):
            points.append(self._table.points[row])
            weighted.append(score + self._log_weights[row])
        return Suggestion(*cheapest(points, weighted, history, self._cost, rng))

    def _scores(self, free: list[int], asked: list[int], trials: list[Trial], loss: list[float]) -> list[float]:
        """Log of expected improvement times P(feasible) of each free row."""
        log_feasible = self._log_feasible(free, asked, trials)
        finite = [value for value in loss if math.isfinite(value)]
        if len(finite) < 2:
            return log_feasible
        shift = fmean(finite)
        scale = pstdev(finite) or 1.0
        model, best = self._fit(asked, trials, [(value - shift) / scale for value in loss])
        scores = []
        for row, certainty in zip(free, log_feasible, strict=True):
            mean, deviation = model.predict(row)
            scores.append(log_expected_improvement(mean, deviation, best) + math.log(scale) + certainty)
        return scores

    def _fit(self, asked: list[int], trials: list[Trial], loss: list[float]) -> tuple[SmallGaussianProcess, float]:
        """Fit the model of the losses. Also return the lowest loss, of the feasible trials if there are any."""
        rows = []
        y = []
        feasible_y = []
        running = []
        for row, trial, value in zip(asked, trials, loss, strict=True):
            if trial.feedback is None:
                running.append(row)
            elif math.isfinite(value):
                rows.append(row)
                y.append(value)
                if feasible(trial.feedback):
                    feasible_y.append(value)
        model = SmallGaussianProcess(self._distance)
        model.fit(rows, y)
        best = min(feasible_y or y)
        if running:
            believed = [model.predict(row)[0] for row in running]
            model.fit([*rows, *running], [*y, *believed])
            best = min(best, *believed)
        return model, best

    def _log_feasible(self, free: list[int], asked: list[int], trials: list[Trial]) -> list[float]:
        """Log of P(feasible) of each free row; 0 as long as nothing was infeasible."""
        rows = []
        labels = []
        for row, trial in zip(asked, trials, strict=True):
            if trial.feedback is not None:
                rows.append(row)
                labels.append(float(feasible(trial.feedback)))
        if all(labels):
            return [0.0] * len(free)
        base = (sum(labels) + 1) / (len(labels) + 2)
        model = SmallGaussianProcess(self._distance)
        model.fit(rows, [label - base for label in labels])
        result = []
        for row in free:
            probability = base + model.predict(row)[0]
            result.append(math.log(min(MAX_CERTAINTY, max(MIN_CERTAINTY, probability))))
        return result

    def _distance(self, a: int, b: int) -> float:
        return float(len(self._tokens[a] ^ self._tokens[b]))


def _tokens(chain: ChainSpace, point: Point) -> frozenset[str]:
    """Features that a point shares with others: its passes, its nodes and its settings."""
    tokens = {name for _, name in chain.passes} | set(chain.nodes)
    for node, values in point.items():
        for name, value in values.items():
            tokens.add(f"{node}.{name}={json.dumps(value, sort_keys=True)}")
    return frozenset(tokens)
