"""BoTorch's qNEHVI over the points of a table, as a peer for several objectives; needs `pip install botorch`.

S. Daulton, M. Balandat, E. Bakshy: Parallel Bayesian optimization of multiple noisy objectives with expected
hypervolume improvement, 2021. It has the first points and the features of `unified`, and chooses among all points that
are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import feasible, losses
from autoopt.search.points import PointTable
from autoopt.search.samplers.base import Decision, Suggestion, exhausted
from autoopt.search.samplers.initial_points import first_untried, initial_points
from autoopt.search.surrogates.features import Features
from autoopt.search.trial import ChainSpace, Feedback

if TYPE_CHECKING:
    from botorch.models import SingleTaskGP
    from torch import Tensor

SAMPLES: Final = 16
"""Of Monte Carlo."""
ITERATIONS: Final = 25
"""Of each fit, which begins with the scales of the last one; without a limit, a suggestion takes seconds."""
LINEAR: Final = ("drop",)
"""Objectives that are no ratios, and are learned as they are."""


class HypervolumeSampler:
    """Suggests the points that a search begins with, then by qNEHVI."""

    def __init__(self, chains: tuple[ChainSpace, ...], objectives: Sequence[Objective], budget: int, seed: int) -> None:
        import torch

        torch.set_num_threads(1)
        self._initial = initial_points(chains, budget, seed)
        self._objectives = objectives
        self._table = PointTable(chains)
        self._fits: dict[int, dict[str, Tensor]] = {}
        self._x = torch.tensor(Features(chains).rows(self._table.points), dtype=torch.double)

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest an untried point that may give a new candidate."""
        initial = first_untried(self._initial, history)
        if initial is not None:
            return Suggestion(*initial)
        told = [(self._table.rows[history.key(t.proposal.chain, t.proposal.point)], t.feedback) for t in history.trials]
        free, _ = self._table.split([place for place, _ in told], history)
        if not free:
            return exhausted(len(self._table.points))
        results = [(place, feedback) for place, feedback in told if feedback is not None and not feedback.failed]
        complete = [place for place, feedback in results if self._gains(feedback) and feasible(feedback)]
        chosen = self._best(free, results, complete, rng) if len(complete) > 1 else rng.choice(free)
        return Suggestion(*self._table.points[chosen])

    def _gains(self, feedback: Feedback) -> list[float]:
        """The objectives as values to maximize; empty where one is missing."""
        found = losses(feedback, self._objectives) or ()
        return [
            -loss if objective.metric in LINEAR else -math.log(loss)
            for loss, objective in zip(found, self._objectives, strict=bool(found))
        ]

    def _best(self, free: list[int], results: list[tuple[int, Feedback]], complete: list[int], rng: Random) -> int:
        import torch
        from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
        from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
        from botorch.models import ModelListGP
        from botorch.sampling import SobolQMCNormalSampler
        from botorch.utils.multi_objective.hypervolume import infer_reference_point

        torch.manual_seed(rng.getrandbits(32))
        gains = {place: self._gains(feedback) for place, feedback in results if self._gains(feedback)}
        columns = zip(*gains.values(), strict=True)
        models = [self._fitted(number, list(gains), list(column)) for number, column in enumerate(columns)]
        constraints: list[Callable[[Tensor], Tensor]] = []
        if any(feedback.violation > 0 for _, feedback in results):
            violations = [feedback.violation for _, feedback in results]
            models.append(self._fitted(len(models), [place for place, _ in results], violations))
            constraints.append(lambda outcomes: outcomes[..., -1])
        acquisition = qLogNoisyExpectedHypervolumeImprovement(
            model=ModelListGP(*models),
            ref_point=infer_reference_point(torch.tensor([gains[place] for place in complete], dtype=torch.double)),
            X_baseline=self._x[complete],
            sampler=SobolQMCNormalSampler(torch.Size([SAMPLES])),
            objective=IdentityMCMultiOutputObjective(outcomes=list(range(len(self._objectives)))),
            constraints=constraints or None,
            prune_baseline=True,
        )
        with torch.no_grad():
            scores = torch.cat([acquisition(part.unsqueeze(1)) for part in self._x[free].split(256)])
        return free[int(scores.argmax())]

    def _fitted(self, number: int, places: list[int], values: list[float]) -> SingleTaskGP:
        """Learn values at places; `number` tells which they are, to begin with what was found for them before."""
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        model = SingleTaskGP(self._x[places], torch.tensor(values, dtype=torch.double).unsqueeze(1))
        own = dict(model.named_parameters())
        for name, values_before in self._fits.get(number, {}).items():
            own[name].data.copy_(values_before)
        options = {"options": {"maxiter": ITERATIONS}}
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs=options, max_attempts=1)
        self._fits[number] = {name: parameter.detach().clone() for name, parameter in own.items()}
        return model
