"""One search over the choice of chain and its parameters together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from autoopt.search.history import History
from autoopt.search.losses import feasible, rank_key
from autoopt.search.points import POOL, PointTable, random_sample, sample, total_points
from autoopt.search.samplers.base import Decision, Sampler, SamplerInputs, Stop, Suggestion
from autoopt.search.samplers.initial_points import first_points
from autoopt.search.samplers.small_surrogate import SmallSurrogateSampler
from autoopt.search.samplers.tie_breaking import cheapest
from autoopt.search.surrogates.features import Features
from autoopt.search.surrogates.scalarization import Single, may_stop, single_losses, too_little
from autoopt.search.trial import ChainSpace, Cost, Trial
from autoopt.space import Point

if TYPE_CHECKING:
    from autoopt.search.surrogates.models import Acquisition, Array, Kind

SMALL: Final = 30
"""Largest space, in points, that `SmallSurrogateSampler` searches."""
BEST_KEPT = 5
"""So many of the best points have their neighbourhood looked at where the space is too large to enumerate."""
LEAST_FIRST = 4
"""The models begin with at least so many points."""


def create(inputs: SamplerInputs) -> Sampler:
    """Create the sampler: in plain Python for a small space, because loading numeric libraries costs more."""
    seed, threshold = inputs.config.seed, inputs.config.min_expected_improvement
    if total_points(inputs.chains) <= SMALL:
        return SmallSurrogateSampler(inputs.chains, seed=seed, threshold=threshold, cost=inputs.cost)
    return SurrogateSampler(inputs.chains, budget=inputs.budget, seed=seed, threshold=threshold, cost=inputs.cost)


class SurrogateSampler:
    """First points, then expected improvement by a Gaussian process and a random forest in turn, times P(feasible).

    Spaces beyond `POOL` points are sampled anew at each step. Several objectives: a new random weighting each time.
    """

    def __init__(
        self,
        chains: Sequence[ChainSpace],
        *,
        budget: int,
        seed: int,
        threshold: float | None = None,
        cost: Cost | None = None,
    ) -> None:
        self._chains = [chain for chain in chains if chain.space.count]
        self._total = total_points(self._chains)
        self._first = first_points(self._chains, budget, seed)
        self._threshold, self._cost = threshold, cost
        self._features = Features(self._chains)
        self._weights = {chain.id: math.log(max(chain.weight, 1e-6)) for chain in self._chains}
        self._pool: PointTable | None = None
        self._rows: Array | None = None

    def next(self, history: History, rng: Random) -> Decision:
        asked = sum(len(history.of_chain(chain.id)) for chain in self._chains)
        if asked >= self._total:
            return Stop(f"all {self._total} points are asked")
        for chain, point in self._first:
            if history.find(chain, point) is None:
                return Suggestion(chain, point)
        if asked < LEAST_FIRST:
            return self._random(history, rng)
        return self._by_promise(history, rng)

    def _random(self, history: History, rng: Random) -> Decision:
        while True:
            chain, point = random_sample(self._chains, rng)
            if history.find(chain, point) is None:
                return Suggestion(chain, point)

    def _by_promise(self, history: History, rng: Random) -> Decision:
        mine = sorted((t for c in self._chains for t in history.of_chain(c.id)), key=lambda t: t.proposal.number)
        points, rows, old = self._tables(mine, history, rng)
        single = single_losses(mine, history.objectives, rng)
        good = [math.nan if t.feedback is None else float(feasible(t.feedback)) for t in mine]
        kinds: tuple[Kind, Kind] = ("gp", "rf") if len(history.trials) % 2 == 0 else ("rf", "gp")
        promised = self._promise(old, single, good, rows, kinds[0], rng)
        if self._threshold is not None and may_stop(single, good, len(self._first)):
            best = float(promised.score.max())
            if too_little(best, single, self._threshold):  # the other model has to agree
                best = float(self._promise(old, single, good, rows, kinds[1], rng).score.max())
            if too_little(best, single, self._threshold):
                return Stop(f"no point promises an improvement of {self._threshold:.2%}")
        scores = [float(s) + self._weights[c] for s, (c, _) in zip(promised.score, points, strict=True)]
        return Suggestion(*cheapest(points, scores, history, self._cost, rng))

    def _promise(
        self, old: Array, single: Single, good: list[float], rows: Array, kind: Kind, rng: Random
    ) -> Acquisition:
        import numpy as np

        from autoopt.search.surrogates.models import Observations, promise

        return promise(Observations(old, np.array(single.loss), np.array(good)), rows, kind, rng.getrandbits(31))

    def _tables(self, mine: list[Trial], history: History, rng: Random) -> tuple[list[tuple[str, Point]], Array, Array]:
        """New points, their rows, and the rows of the asked ones."""
        if self._total > POOL:
            best = sorted(mine, key=lambda t: rank_key(t.feedback, history.objectives))[:BEST_KEPT]
            new = sample(self._chains, history, [(t.proposal.chain, t.proposal.point) for t in best], rng)
            rows = self._features.rows([*new, *((t.proposal.chain, t.proposal.point) for t in mine)])
            return new, rows[: len(new)], rows[len(new) :]
        if self._pool is None or self._rows is None:
            self._pool = PointTable(self._chains)
            self._rows = self._features.rows(self._pool.points)
        asked = [self._pool.rows[history.key(t.proposal.chain, t.proposal.point)] for t in mine]
        taken = set(asked)
        free = [row for row in range(self._total) if row not in taken]
        return [self._pool.points[row] for row in free], self._rows[free], self._rows[asked]
