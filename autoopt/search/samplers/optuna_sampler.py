"""Optuna's samplers, over one chain or over the choice of chain and its parameters together.

A point becomes the parameters of an Optuna trial. A parameter is named `node.param=values`, so that equal names in two
passes never mix: a study wants the same values each time for a name, and chains that share a node may search different
ones. Where its parents decide which values it has, the name is `node.param@parent values=values`. The parameter `chain`
is the chain.
"""

from __future__ import annotations

import inspect
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.losses import losses
from autoopt.search.samplers.base import Decision, SamplerInputs, Stop, Suggestion, exhausted
from autoopt.search.samplers.plain import draw_from
from autoopt.search.trial import ChainSpace, Feedback, Proposal
from autoopt.space import Point, Value
from autoopt.spec.search import find_sampler

if TYPE_CHECKING:
    import optuna

MAX_ASKS: Final = 10
"""Number of times a sampler that repeats itself is asked before a point is drawn at random."""
SEQUENCE: Final = "QMCSampler"
"""The sampler that goes through one sequence of its own, which a new seed would start again."""
FAILED_VIOLATION: Final = 1e300
"""The violation of a failed trial in a study: worse than any other."""
CHAIN: Final = "chain"
Params: TypeAlias = dict[str, object]
"""Parameters of a trial, by name."""
Select: TypeAlias = Callable[[str, str, tuple[Value, ...]], Value]
"""(node, name of its parameter, values) -> one of the values."""


class OptunaSampler:
    """Suggests what an Optuna sampler suggests.

    The study lives in memory and is a cache of the history: every trial of the history is a trial of the study, in
    order, whichever sampler suggested it. With several chains, the chain is a categorical parameter.
    """

    def __init__(self, inputs: SamplerInputs) -> None:
        self._chains = {chain.id: chain for chain in inputs.chains}
        self._name = find_sampler(inputs.config.sampler_name).name
        self._seed = inputs.config.seed
        self._objectives = inputs.objectives
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
        """Create the Optuna sampler that suggests, quiet, with `seed` if it takes one."""
        import optuna

        sampler = getattr(optuna.samplers, self._name)
        parameters = inspect.signature(sampler).parameters
        options: dict[str, object] = {}
        if "seed" in parameters:
            options["seed"] = seed
        if "warn_independent_sampling" in parameters:
            options["warn_independent_sampling"] = False
        with quiet():
            created: optuna.samplers.BaseSampler = sampler(**options)
        return created

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
            if trial.chain in self._chains and trial.upto is None and trial.number not in self._study_trials:
                self._study_trials[trial.number] = add_trial(self.study, self._chains, trial.chain, trial.point)
                self._running.append(trial.number)
        self._history_length = len(history.trials)
        running = []
        for number in self._running:
            trial = history.trials[number]
            if trial.feedback is None:
                running.append(number)
            else:
                tell(self.study, self._study_trials[number], trial, history.objectives)
        self._running = running


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Optuna's warnings of experimental functions, and of parameters that a sampler draws independently."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def new_study(objectives: Sequence[Objective]) -> optuna.Study:
    """Create an empty study in memory with the directions of the objectives."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [objective.goal for objective in objectives]
    study = optuna.create_study(directions=directions)
    with quiet():
        study.set_metric_names([objective.metric for objective in objectives])
    return study


def add_trial(study: optuna.Study, chains: dict[str, ChainSpace], chain: str, point: Point) -> optuna.Trial:
    """Add a running trial at `point` to the study."""
    params = params_of(chains[chain], point)
    if len(chains) > 1:
        params[CHAIN] = chain
    with quiet():
        study.enqueue_trial(params)
        trial = study.ask()
        suggest_chain(trial, list(chains))
        suggest_point(trial, chains[chain])
    return trial


def tell(study: optuna.Study, study_trial: optuna.Trial, trial: Proposal, objectives: Sequence[Objective]) -> None:
    """Tell the study a result: complete, or pruned if the trial failed or stopped before its objectives."""
    import optuna

    feedback = trial.feedback or Feedback(failed=True)
    violation = feedback.violation
    if feedback.failed or math.isnan(violation):
        violation = FAILED_VIOLATION
    study_trial.set_constraint("violation", max(-FAILED_VIOLATION, min(FAILED_VIOLATION, violation)))
    study_trial.set_user_attr("trial", trial.number)
    if feedback.artifact is not None:
        study_trial.set_user_attr("artifact", feedback.artifact)
    if losses(feedback, objectives) is None:
        study.tell(study_trial, state=optuna.trial.TrialState.PRUNED)
    else:
        study.tell(study_trial, [feedback.values[objective.metric] for objective in objectives])


def discard(study: optuna.Study, trial: optuna.Trial, reason: str) -> None:
    """End a trial that is not used: Optuna expects a result for every trial that it was asked for."""
    import optuna

    trial.set_user_attr("dropped", reason)
    study.tell(trial, state=optuna.trial.TrialState.FAIL)


def suggest_chain(trial: optuna.Trial, chains: list[str]) -> str:
    """Ask `trial` for a chain's id if there are several."""
    if len(chains) == 1:
        return chains[0]
    return str(trial.suggest_categorical(CHAIN, chains))


def suggest_point(trial: optuna.Trial, chain: ChainSpace) -> Point | None:
    """Ask `trial` for a point, parents before children; None if the values exclude each other."""

    def select(node: str, name: str, values: tuple[Value, ...]) -> Value:
        grid = _integer_grid(values)
        if grid is not None:
            low, high, step = grid
            return trial.suggest_int(_full_name(node, name, values), low, high, step=step)
        choices = [_encode(value, values) for value in values]
        return values[choices.index(trial.suggest_categorical(_full_name(node, name, values), choices))]

    return _walk(chain, select)


def params_of(chain: ChainSpace, point: Point) -> Params:
    """Encode a point as the parameters of a trial, without the chain."""
    params: Params = {}

    def select(node: str, name: str, values: tuple[Value, ...]) -> Value:
        value = point[node][name.split("@")[0]]
        params[_full_name(node, name, values)] = _encode(value, values)
        return value

    _walk(chain, select)
    return params


def _walk(chain: ChainSpace, select: Select) -> Point | None:
    """Select a point parameter by parameter."""
    point: Point = {}
    for node, space in chain.space.nodes.items():
        settings = space.walk(partial(select, node))
        if settings is None:
            return None
        if settings:
            point[node] = settings
    if not chain.space.allows(point):
        return None
    return point


def _full_name(node: str, name: str, values: tuple[Value, ...]) -> str:
    return f"{node}.{name}={json.dumps(values, sort_keys=True)}"


def _integer_grid(values: tuple[Value, ...]) -> tuple[int, int, int] | None:
    """Return (low, high, step) of evenly rising whole numbers, which a study treats as numbers."""
    integers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(integers) < len(values) or len(values) < 3:
        return None
    steps = {b - a for a, b in pairwise(integers)}
    step = steps.pop()
    if steps or step <= 0:
        return None
    return integers[0], integers[-1], step


def _encode(value: Value, values: tuple[Value, ...]) -> bool | int | float | str | None:
    """Encode a value for a study: Optuna holds no lists, and confuses `True` with `1`."""
    booleans = numbers = False
    plain = True
    for each in values:
        if isinstance(each, bool):
            booleans = True
        elif isinstance(each, int | float):
            numbers = True
        elif not isinstance(each, str | None):
            plain = False
    if plain and not (booleans and numbers) and isinstance(value, bool | int | float | str | None):
        return value
    return json.dumps(value, sort_keys=True)
