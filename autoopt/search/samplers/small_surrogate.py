"""The surrogate sampler of small spaces, in plain Python: every point gets its turn, the promising ones first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean, pstdev
from typing import Final

from autoopt.search.history import History
from autoopt.search.losses import feasible
from autoopt.search.points import PointTable
from autoopt.search.samplers.base import Decision, Stop, Suggestion
from autoopt.search.samplers.initial_points import first_untried, initial_points
from autoopt.search.samplers.tie_breaking import cheapest
from autoopt.search.surrogates.scalarization import Single, improvement_below, may_stop, single_losses
from autoopt.search.surrogates.slack import scaled_violations
from autoopt.search.surrogates.small_gaussian_process import (
    SmallGaussianProcess,
    chance_below,
    log_expected_improvement,
)
from autoopt.search.surrogates.stopping import STOPPED, chance_of_any, gain_in_losses, is_settled
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
        self,
        chains: Sequence[ChainSpace],
        *,
        seed: int,
        threshold: float | None = None,
        stops_early: bool = False,
        cost: Cost | None = None,
    ) -> None:
        self._stops_early = stops_early
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
        scores, chances = self._scores(free, asked, trials, single)
        threshold, beginning = self._threshold, len(self._initial)
        stop_allowed = may_stop(single, trials[:count], beginning)
        if threshold is not None and stop_allowed and improvement_below(threshold, max(scores), single):
            return Stop(f"no remaining point is expected to improve by {threshold:.2%}")
        stops_early = self._stops_early and len(history.objectives) == 1
        if stops_early and is_settled(trials[:count], single, beginning, partial(chance_of_any, chances)):
            return Stop(STOPPED)
        points = []
        weighted = []
        for score, row in zip(scores, free, strict=True):
            points.append(self._table.points[row])
            weighted.append(score + self._log_weights[row])
        return Suggestion(*cheapest(points, weighted, history, self._cost, rng))

    def _scores(
        self, free: list[int], asked: list[int], trials: list[Trial], single: Single
    ) -> tuple[list[float], list[float]]:
        """Of each free row the log of expected improvement times P(feasible), and the chance of a gain."""
        log_feasible = self._log_feasible(free, asked, trials)
        loss = single.loss
        finite = [value for value in loss if math.isfinite(value)]
        if len(finite) < 2:
            return log_feasible, [1.0]
        shift = fmean(finite)
        scale = pstdev(finite) or 1.0
        model, best = self._fit(asked, trials, [(value - shift) / scale for value in loss])
        limit = best - gain_in_losses(single) / scale
        scores: list[float] = []
        chances: list[float] = []
        for row, certainty in zip(free, log_feasible, strict=True):
            mean, deviation = model.predict(row)
            scores.append(log_expected_improvement(mean, deviation, best) + math.log(scale) + certainty)
            chances.append(chance_below(limit, mean, deviation) * math.exp(certainty))
        return scores, chances

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
        """Log of P(feasible) of each free row, as for `models.log_feasible`."""
        labels: dict[int, bool] = {}
        succeeded: dict[int, bool] = {}
        for row, trial in zip(asked, trials, strict=True):
            if trial.feedback is not None:
                labels[row] = feasible(trial.feedback)
                succeeded[row] = not trial.feedback.failed
        chances = self._chance_of(labels, free)
        violations = scaled_violations(trials)
        if violations is not None:
            known = {row: value for row, value in zip(asked, violations, strict=True) if math.isfinite(value)}
            graded = zip(self._chance_of(succeeded, free), self._chance_within(known, free), strict=True)
            chances = [(chance + a * b) / 2 for chance, (a, b) in zip(chances, graded, strict=True)]
        return [math.log(chance) for chance in chances]

    def _chance_of(self, labels: Mapping[int, bool], free: list[int]) -> list[float]:
        """The probability of the label true of each free row; 1 as long as no label is false."""
        if all(labels.values()):
            return [1.0] * len(free)
        base = (sum(labels.values()) + 1) / (len(labels) + 2)
        model = SmallGaussianProcess(self._distance)
        model.fit(list(labels), [label - base for label in labels.values()])
        return [_bounded(base + model.predict(row)[0]) for row in free]

    def _chance_within(self, violations: Mapping[int, float], free: list[int]) -> list[float]:
        """The probability of a violation below 0 of each free row."""
        shift = fmean(violations.values())
        scale = pstdev(violations.values()) or 1.0
        model = SmallGaussianProcess(self._distance)
        model.fit(list(violations), [(value - shift) / scale for value in violations.values()])
        return [_bounded(chance_below(-shift / scale, *model.predict(row))) for row in free]

    def _distance(self, a: int, b: int) -> float:
        return float(len(self._tokens[a] ^ self._tokens[b]))


def _bounded(chance: float) -> float:
    return min(MAX_CERTAINTY, max(MIN_CERTAINTY, chance))


def _tokens(chain: ChainSpace, point: Point) -> frozenset[str]:
    """Features that a point shares with others: its passes, its nodes and its settings."""
    tokens = {name for _, name in chain.passes} | set(chain.nodes)
    for node, values in point.items():
        for name, value in values.items():
            tokens.add(f"{node}.{name}={json.dumps(value, sort_keys=True)}")
    return frozenset(tokens)
