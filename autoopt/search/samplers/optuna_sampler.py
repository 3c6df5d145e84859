"""Optuna samplers over one chain, or over the choice of chain and its parameters together.

Parameters are named `node.param`, so equal names in two passes never mix. The study lives in memory and is a cache of
the history: every trial of the history is a trial of the study, in order, whoever proposed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.optuna_study.encoding import suggest_chain, suggest_point
from autoopt.search.optuna_study.samplers import create_optuna_sampler
from autoopt.search.optuna_study.study import drop, enter, new_study, quiet, tell
from autoopt.search.samplers.base import Decision, SamplerInputs, Stop, Suggestion, exhausted
from autoopt.search.samplers.uniform import random_unseen
from autoopt.search.trial import ChainSpace
from autoopt.spec.samplers import find_sampler

if TYPE_CHECKING:
    import optuna

REASKS = 10
"""How often a sampler that repeats itself is asked again before a point is drawn at random."""
FAILED_VIOLATION = 1e300
"""The violation that a failed trial shows in a study: worse than any other."""


def create(inputs: SamplerInputs) -> OptunaSampler:
    """Create the sampler, over one chain or over several together."""
    info = find_sampler(inputs.config.sampler_name)
    return OptunaSampler(inputs.chains, info.name, inputs.config.seed, inputs.objectives)


class OptunaSampler:
    """An Optuna sampler by name. One chain: its parameters; several: a categorical `chain`, then that chain's."""

    def __init__(self, chains: Sequence[ChainSpace], sampler: str, seed: int, objectives: Sequence[Objective]) -> None:
        self._chains = {chain.id: chain for chain in chains}
        self._sampler, self._seed = sampler, seed
        self.study = new_study(objectives)
        self.study.sampler = create_optuna_sampler(sampler, seed)
        self._studied: dict[int, optuna.Trial] = {}
        self._untold: list[int] = []
        self._scanned = 0

    def next(self, history: History, rng: Random) -> Decision:
        if all(_count(history, c) >= c.space.count for c in self._chains.values()):
            return (
                exhausted(next(iter(self._chains.values()))) if len(self._chains) == 1 else Stop("all points are asked")
            )
        self._sync(history)
        if not isinstance(self.study.sampler, _sequences()):
            self.study.sampler = create_optuna_sampler(self._sampler, rng.getrandbits(31))
        for _ in range(REASKS):
            with quiet():
                trial = self.study.ask()
                chain = self._chains[suggest_chain(trial, list(self._chains))]
                point = suggest_point(trial, chain)
            if point is not None and history.find(chain.id, point) is None:
                self._studied[len(history.trials)] = trial
                self._untold.append(len(history.trials))
                return Suggestion(chain.id, point)
            drop(self.study, trial, "a point asked before, or an invalid one")
        return self._at_random(history, rng)

    def _at_random(self, history: History, rng: Random) -> Decision:
        chains = list(self._chains.values())
        rng.shuffle(chains)
        for chain in chains:
            point = random_unseen(chain, history, rng)
            if point is not None:
                return Suggestion(chain.id, point)
        return Stop("all points are asked")

    def _sync(self, history: History) -> None:
        """Bring the study up to the history: trials that others proposed, and what was told since."""
        for trial in history.trials[self._scanned :]:
            number, proposal = trial.proposal.number, trial.proposal
            if proposal.chain in self._chains and proposal.upto is None and number not in self._studied:
                self._studied[number] = enter(self.study, self._chains, proposal.chain, proposal.point)
                self._untold.append(number)
        self._scanned = len(history.trials)
        still = []
        for number in self._untold:
            trial = history.trials[number]
            if trial.feedback is None:
                still.append(number)
            else:
                tell(self.study, self._studied[number], trial, history.objectives)
        self._untold = still


def _count(history: History, chain: ChainSpace) -> int:
    return len(history.of_chain(chain.id))


def _sequences() -> tuple[type, ...]:
    """Samplers that go through one sequence of their own; all others get a new seed for each trial, so that what they
    propose depends on nothing but the study and the trial's number."""
    import optuna

    return (optuna.samplers.QMCSampler,)
