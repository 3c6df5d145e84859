"""Finished trials as studies in an Optuna storage, for optuna-dashboard and Optuna's own analyses."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from autoopt.errors import InputError, writing
from autoopt.json_codec import JsonValue
from autoopt.metrics import Direction
from autoopt.outcome import Outcome
from autoopt.results import Trial
from autoopt.results.trial import flat_params
from autoopt.search.samplers.optuna_sampler import CHAIN

_SQLITE: Final = b"SQLite format 3\0"
CONSTRAINTS: Final = "constraints"
"""System attribute that optuna-dashboard reads: a list of numbers, each met if it is not above 0."""


@dataclass(frozen=True)
class ExportedStudy:
    """A study to write."""

    name: str
    objectives: Mapping[str, Direction]
    """By the names of their figures."""
    trials: Sequence[Trial]
    attributes: Mapping[str, JsonValue] = field(default_factory=dict)


def write_studies(file: Path, studies: Sequence[ExportedStudy]) -> None:
    """Write studies into an SQLite file; studies of the same names are replaced, others stay.

    Raises:
        InputError: the file is something else, or its folder does not exist or cannot be written.
    """
    with writing(file), file.open("ab+") as stream:
        stream.seek(0)
        head = stream.read(len(_SQLITE))
    if head not in (b"", _SQLITE):
        raise InputError("is not an SQLite file", where=str(file), remedy="name another file")
    if head:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "studies" not in tables:
            raise InputError("is a database without Optuna's studies", where=str(file), remedy="name another file")
    with _quiet():
        storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
        names = {summary.study_name for summary in optuna.get_all_study_summaries(storage)}
        for study in studies:
            if study.name in names:
                optuna.delete_study(study_name=study.name, storage=storage)
            _write(storage, study)
        storage.remove_session()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log and its warning that names of metrics are experimental."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


def _write(storage: optuna.storages.RDBStorage, content: ExportedStudy) -> None:
    directions = list(content.objectives.values())
    study = optuna.create_study(study_name=content.name, storage=storage, directions=directions)
    study.set_metric_names(list(content.objectives))
    for name, value in content.attributes.items():
        study.set_user_attr(name, value)
    points: list[dict[str, JsonValue]] = []
    values: dict[str, list[CategoricalChoiceType]] = {}
    for trial in content.trials:
        points.append({CHAIN: trial.chain, **flat_params(trial.point)})
        for name, value in points[-1].items():
            values.setdefault(name, []).append(_choice(value))
    # The same distribution for all trials, from all values that occur.
    distributions = {name: _distribution(choices) for name, choices in values.items()}
    for number, (trial, point) in enumerate(zip(content.trials, points, strict=True)):
        reached = [trial.figures[name] for name in content.objectives if name in trial.figures]
        is_complete = trial.outcome is Outcome.OK and len(reached) == len(content.objectives)
        frozen = _frozen(trial, number, point, distributions)
        if is_complete:
            frozen.state, frozen.values = TrialState.COMPLETE, reached
        study.add_trial(frozen)


def _frozen(
    trial: Trial, number: int, point: Mapping[str, JsonValue], distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """A trial without values, as one that failed."""
    attributes: dict[str, JsonValue] = {"autoopt trial": trial.number, "outcome": str(trial.outcome), **trial.figures}
    if trial.explanation:
        attributes["message"] = trial.explanation
    if trial.candidate is not None:
        attributes["artifact"] = trial.candidate.artifact
    ended = trial.finished or 0.0
    return FrozenTrial(
        number=number,
        state=TrialState.FAIL,
        value=None,
        datetime_start=datetime.fromtimestamp(ended - trial.seconds),  # Optuna's times are local ones
        datetime_complete=datetime.fromtimestamp(ended),
        params={name: _choice(value) for name, value in point.items()},
        distributions={name: distributions[name] for name in point},
        user_attrs=attributes,
        system_attrs={CONSTRAINTS: [trial.violation]},
        intermediate_values={},
        trial_id=number,
    )


def _distribution(values: Sequence[CategoricalChoiceType]) -> BaseDistribution:
    types = set(map(type, values))
    numbers = [value for value in values if isinstance(value, int | float)]
    if types == {int}:
        return IntDistribution(int(min(numbers)), int(max(numbers)))
    if types in ({float}, {int, float}):
        return FloatDistribution(float(min(numbers)), float(max(numbers)))
    choices: list[CategoricalChoiceType] = []
    for value in values:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            choices.append(value)
    return CategoricalDistribution(choices)


def _choice(value: JsonValue) -> CategoricalChoiceType:
    """A value that Optuna can store: lists and mappings as JSON text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value)
