"""Trials as an Optuna study."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from autoopt.metrics import Objective
from autoopt.search.losses import losses
from autoopt.search.optuna_study.encoding import CHAIN, params_of, suggest_chain, suggest_point
from autoopt.search.trial import ChainSpace, Feedback, Trial
from autoopt.space import Point

if TYPE_CHECKING:
    import optuna

FAILED_VIOLATION: Final = 1e300
"""The violation that a failed trial shows in a study: worse than any other."""


def as_study(
    chains: Sequence[ChainSpace],
    objectives: Sequence[Objective],
    trials: Sequence[Trial],
    *,
    name: str | None = None,
    storage: Any = None,
) -> optuna.Study:
    """The whole-chain trials of any search as an Optuna study, in order: for its dashboard and its plots.

    `storage` is anything Optuna takes; in memory without. Running trials are running there too.
    """
    study = new_study(objectives, name, storage)
    by_id = {chain.id: chain for chain in chains}
    for trial in trials:
        if trial.proposal.upto is None:
            live = enter(study, by_id, trial.proposal.chain, trial.proposal.point)
            if trial.feedback is not None:
                tell(study, live, trial, objectives)
    return study


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
