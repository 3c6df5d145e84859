"""The data sets of a run with their descriptions, each read once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoopt.data.config import DataConfig
from autoopt.data.description import DataDescription
from autoopt.problem.named_sources import data_source, describe_data
from autoopt.problem.problem import DataSets, DataSource
from autoopt.problem.resources import Resources

MOST_STARTS = 8
"""Beginnings of sequences that a message lists."""
Described: TypeAlias = tuple[DataSource, DataDescription]


@dataclass(frozen=True)
class DescribedData:
    """Data sets and their descriptions."""

    sets: DataSets
    descriptions: Sequence[Described]
    """Of the data sets that there are, each once, the evaluation data first."""
    notes: Sequence[str] = ()
    """Messages for the user."""

    @property
    def evaluation(self) -> DataDescription | None:
        """The description of the evaluation data."""
        described = (description for source, description in self.descriptions if source is self.sets.evaluation)
        return next(described, None)

    def with_own_state(self, resources: Resources) -> DescribedData:
        """Feed recurrent state back if the items of the evaluation data follow each other, and note it.

        The data hold the states of the source model, with which the errors of a candidate would not add up.
        """
        evaluation, description = self.sets.evaluation, self.evaluation
        if evaluation.config is None or description is None or not description.state:
            return self
        config = DataConfig.parse({**evaluation.config, **description.state_fields})
        streamed = data_source(config, resources.store.home / "downloads")
        sets = replace(self.sets, evaluation=streamed)
        if sets.calibration == evaluation:
            sets = replace(sets, calibration=streamed)
        others = [pair for pair in self.descriptions if pair[0] is not evaluation]
        names = ", ".join(f"{output} -> {name}" for output, name in description.state.items())
        note = f"items follow each other: quality is measured with each model's own recurrent state ({names})"
        if description.starts:
            note += f"; sequences that start with the state in the data: {len(description.starts)}"
        return DescribedData(sets, [(streamed, description), *others], [*self.notes, note])


def describe_sets(sets: DataSets, artifact: str, resources: Resources) -> DescribedData:
    """Describe data sets for the source model with this digest.

    Raises:
        InputError: Data cannot be read.
    """
    model_file = resources.store.artifacts.readable(artifact)
    described: list[Described] = []
    evaluation = describe_data(resources, sets.evaluation, model_file, artifact)
    if evaluation is not None:
        described.append((sets.evaluation, evaluation))
    for other in (sets.calibration, sets.latency):
        if other != sets.evaluation:
            description = describe_data(resources, other, model_file, artifact)
            if description is not None:
                # Only the labels of the evaluation data are used; those of other data may be anything.
                described.append((other, replace(description, label_text=None)))
    return DescribedData(sets, described)


def state_advice(description: DataDescription) -> str:
    """Say what to write into the data of a DAG so that each model gets its own recurrent state."""
    advice = "items follow each other; "
    if len(description.starts) > MOST_STARTS:
        return f"{advice}'autoopt init MODEL --data FILE' writes the fields that give each model its own state"
    text = ", ".join(f"{name}: {json.dumps(value)}" for name, value in description.state_fields.items())
    return f"{advice}{text} in the data gives each model its own state"
