"""Optuna samplers over one chain, or over the choice of chain and its parameters together.

Parameters are named `node.param`, so equal names in two passes never mix. The study lives in memory and is a cache of
the history: every trial of the history is a trial of the study, in order, whoever proposed it.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

from autoopt.errors import InputError, did_you_mean
from autoopt.metrics import Objective
from autoopt.search.base import ChainSpace, Feedback, Trial
from autoopt.search.chooser import Answer, End, Pick, exhausted
from autoopt.search.encoding import CHAIN, params_of, suggest_chain, suggest_point
from autoopt.search.history import History, losses
from autoopt.search.plain import random_unseen
from autoopt.space import Point

if TYPE_CHECKING:
    import optuna

REASKS = 10
"""How often a sampler that repeats itself is asked again before a point is drawn at random."""
FAILED_VIOLATION = 1e300
"""The violation that a failed trial shows in a study: worse than any other."""


class StudySearch:
    """An Optuna sampler by name. One chain: its parameters; several: a categorical `chain`, then that chain's."""

    def __init__(self, chains: Sequence[ChainSpace], sampler: str, seed: int, objectives: Sequence[Objective]) -> None:
        self._chains = {chain.id: chain for chain in chains}
        self._sampler, self._seed = sampler, seed
        self.study = new_study(objectives)
        self.study.sampler = make_sampler(sampler, seed)
        self._studied: dict[int, optuna.Trial] = {}
        self._untold: list[int] = []
        self._scanned = 0

    def next(self, history: History, rng: Random) -> Answer:
        if all(_count(history, c) >= c.space.count for c in self._chains.values()):
            return (
                exhausted(next(iter(self._chains.values()))) if len(self._chains) == 1 else End("all points are asked")
            )
        self._sync(history)
        if not isinstance(self.study.sampler, _sequences()):
            self.study.sampler = make_sampler(self._sampler, rng.getrandbits(31))
        for _ in range(REASKS):
            with quiet():
                trial = self.study.ask()
                chain = self._chains[suggest_chain(trial, list(self._chains))]
                point = suggest_point(trial, chain)
            if point is not None and history.find(chain.id, point) is None:
                self._studied[len(history.trials)] = trial
                self._untold.append(len(history.trials))
                return Pick(chain.id, point)
            drop(self.study, trial, "a point asked before, or an invalid one")
        return self._at_random(history, rng)

    def _at_random(self, history: History, rng: Random) -> Answer:
        chains = list(self._chains.values())
        rng.shuffle(chains)
        for chain in chains:
            point = random_unseen(chain, history, rng)
            if point is not None:
                return Pick(chain.id, point)
        return End("all points are asked")

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


def make_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """An Optuna sampler by class name (`NSGAIISampler`) or short name (`nsgaii`, `tpe`, `qmc`, `cmaes`).

    Raises:
        InputError: no such sampler, it cannot be made without arguments, or it needs a library that is not installed.
    """
    import optuna

    known = {n: getattr(optuna.samplers, n) for n in optuna.samplers.__all__ if n.endswith("Sampler")}
    short = {n.removesuffix("Sampler").lower(): n for n in known if not n.startswith("Base")}
    found = known.get(name) or known.get(short.get(name.lower().replace("_", "").replace("-", ""), ""))
    if found is None or name.startswith("Base"):
        hint = did_you_mean(name, [*short, *known]) or f"known: exhaustive, surrogate, {', '.join(sorted(short))}"
        raise InputError(f"unknown sampler {name!r}", where="search", remedy=hint)
    try:
        _probe(found)
    except (TypeError, ImportError) as error:
        raise InputError(f"sampler {name!r} cannot be used here: {error}", where="search") from error
    return _made(found, seed)


def _made(sampler: type[optuna.samplers.BaseSampler], seed: int) -> optuna.samplers.BaseSampler:
    takes = inspect.signature(sampler).parameters
    options = {"seed": seed, "warn_independent_sampling": False}
    with quiet():
        return sampler(**{name: value for name, value in options.items() if name in takes})


@lru_cache
def _probe(sampler: type[optuna.samplers.BaseSampler]) -> None:
    """Let a sampler run for a moment: some load the library they need only when they first have something to learn."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with quiet():
        study = optuna.create_study(sampler=_made(sampler, 0))
        for _ in range(12):
            trial = study.ask()
            study.tell(trial, trial.suggest_float("x", 0, 1, step=0.1) + trial.suggest_int("y", 0, 5))


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's warnings: on experimental functions, and on what a sampler leaves out of account."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def new_study(objectives: Sequence[Objective], name: str | None = None, storage: Any = None) -> optuna.Study:
    """An empty study with the objectives' directions; in memory unless there is a `storage`."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    goals = [objective.goal for objective in objectives]
    study = optuna.create_study(directions=goals, study_name=name, storage=storage)
    with quiet():
        study.set_metric_names([objective.metric for objective in objectives])
    return study


def enter(study: optuna.Study, chains: dict[str, ChainSpace], chain: str, point: Point) -> optuna.Trial:
    """A running trial at `point`, added to the study."""
    fixed = {**({CHAIN: chain} if len(chains) > 1 else {}), **params_of(chains[chain], point)}
    with quiet():
        study.enqueue_trial(fixed)
        trial = study.ask()
        suggest_chain(trial, list(chains))
        suggest_point(trial, chains[chain])
    return trial


def tell(study: optuna.Study, live: optuna.Trial, trial: Trial, objectives: Sequence[Objective]) -> None:
    """Tell the study what a trial gave: complete, or pruned where it failed or stopped before its objectives."""
    import optuna

    feedback: Feedback = trial.feedback or Feedback(failed=True)
    broken = FAILED_VIOLATION if feedback.failed or math.isnan(feedback.violation) else feedback.violation
    live.set_constraint("violation", max(-FAILED_VIOLATION, min(FAILED_VIOLATION, broken)))
    live.set_user_attr("trial", trial.proposal.number)
    if feedback.artifact is not None:
        live.set_user_attr("artifact", feedback.artifact)
    if losses(feedback, objectives) is None:
        study.tell(live, state=optuna.trial.TrialState.PRUNED)
    else:
        study.tell(live, [feedback.values[o.metric] for o in objectives])


def drop(study: optuna.Study, trial: optuna.Trial, why: str) -> None:
    """End a trial that is not carried out; every asked trial is told."""
    import optuna

    trial.set_user_attr("dropped", why)
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
