"""Optuna's samplers, over one chain or over the choice of chain and its parameters together."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Final

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.optuna_study.encoding import suggest_chain, suggest_point
from autoopt.search.optuna_study.study import add_trial, discard, new_study, quiet, tell
from autoopt.search.samplers.base import Decision, SamplerInputs, Stop, Suggestion, exhausted
from autoopt.search.samplers.uniform import draw_from
from autoopt.search.trial import ChainSpace
from autoopt.spec.samplers import find_sampler

if TYPE_CHECKING:
    import optuna

MAX_ASKS: Final = 10
"""Number of times a sampler that repeats itself is asked before a point is drawn at random."""
SEQUENCE: Final = "QMCSampler"
"""The sampler that goes through one sequence of its own, which a new seed would start again."""


def create(inputs: SamplerInputs) -> OptunaSampler:
    """Create the sampler, over one chain or over several together."""
    info = find_sampler(inputs.config.sampler_name)
    return OptunaSampler(inputs.chains, info.name, inputs.config.seed, inputs.objectives)


class OptunaSampler:
    """Suggests what an Optuna sampler suggests.

    The study lives in memory and is a cache of the history: every trial of the history is a trial of the study, in
    order, whichever sampler suggested it. With several chains, the chain is a categorical parameter.
    """

    def __init__(self, chains: Sequence[ChainSpace], name: str, seed: int, objectives: Sequence[Objective]) -> None:
        self._chains = {chain.id: chain for chain in chains}
        self._name = name
        self._seed = seed
        self._objectives = objectives
        self._study_trials: dict[int, optuna.Trial] = {}
        self._running: list[int] = []
        self._history_length = 0

    @cached_property
    def study(self) -> optuna.Study:
        """The study, made at its first use: a run that needs no suggestion imports no optuna."""
        study = new_study(self._objectives)
        study.sampler = self.create(self._seed)
        return study

    def create(self, seed: int) -> optuna.samplers.BaseSampler:
        """Create the Optuna sampler that suggests."""
        return create_optuna_sampler(self._name, seed)

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest the sampler's next new point; a random one if it keeps repeating itself."""
        chains = list(self._chains.values())
        if all(len(history.trials_of(chain.id)) >= chain.space.count for chain in chains):
            if len(chains) == 1:
                return exhausted(chains[0].space.count)
            return Stop("all points tried")
        self.sync(history)
        if self._name != SEQUENCE:
            # A new seed for each trial: what is suggested then depends only on the study and the trial's number.
            self.study.sampler = self.create(rng.getrandbits(31))
        for _ in range(MAX_ASKS):
            with quiet():
                trial = self.study.ask()
                chain = self._chains[suggest_chain(trial, list(self._chains))]
                point = suggest_point(trial, chain)
            if point is not None and history.find(chain.id, point) is None:
                self._study_trials[len(history.trials)] = trial
                self._running.append(len(history.trials))
                return Suggestion(chain.id, point)
            discard(self.study, trial, "a point asked before, or an invalid one")
        return draw_from(chains, history, rng)

    def sync(self, history: History) -> None:
        """Bring the study up to date: with trials that other samplers suggested, and with new results."""
        for trial in history.trials[self._history_length :]:
            number, proposal = trial.proposal.number, trial.proposal
            if proposal.chain in self._chains and proposal.upto is None and number not in self._study_trials:
                self._study_trials[number] = add_trial(self.study, self._chains, proposal.chain, proposal.point)
                self._running.append(number)
        self._history_length = len(history.trials)
        running = []
        for number in self._running:
            trial = history.trials[number]
            if trial.feedback is None:
                running.append(number)
            else:
                tell(self.study, self._study_trials[number], trial, history.objectives)
        self._running = running


def create_optuna_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """Create the Optuna sampler of class `name`, quiet, with `seed` if it takes one."""
    import optuna

    sampler = getattr(optuna.samplers, name)
    parameters = inspect.signature(sampler).parameters
    options: dict[str, object] = {}
    if "seed" in parameters:
        options["seed"] = seed
    if "warn_independent_sampling" in parameters:
        options["warn_independent_sampling"] = False
    with quiet():
        created: optuna.samplers.BaseSampler = sampler(**options)
    return created
