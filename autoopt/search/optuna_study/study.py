"""Trials as an Optuna study."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from autoopt.metrics import Objective
from autoopt.search.losses import losses
from autoopt.search.optuna_study.encoding import CHAIN, params_of, suggest_chain, suggest_point
from autoopt.search.trial import ChainSpace, Feedback, Trial
from autoopt.space import Point

if TYPE_CHECKING:
    import optuna

FAILED_VIOLATION: Final = 1e300
"""The violation of a failed trial in a study: worse than any other."""


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


def tell(study: optuna.Study, study_trial: optuna.Trial, trial: Trial, objectives: Sequence[Objective]) -> None:
    """Tell the study a result: complete, or pruned if the trial failed or stopped before its objectives."""
    import optuna

    feedback = trial.feedback or Feedback(failed=True)
    violation = feedback.violation
    if feedback.failed or math.isnan(violation):
        violation = FAILED_VIOLATION
    study_trial.set_constraint("violation", max(-FAILED_VIOLATION, min(FAILED_VIOLATION, violation)))
    study_trial.set_user_attr("trial", trial.proposal.number)
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
