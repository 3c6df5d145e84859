"""The data sets of a request, described and checked against its model."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from autoopt.data import DataConfig
from autoopt.data.description import DataDescription
from autoopt.data.digest import digest as digest_data
from autoopt.model.fetch import localized
from autoopt.model.inspection import Inspection
from autoopt.problem.data_check import check_data
from autoopt.problem.problem import DataSets, DataSource
from autoopt.results import Note

MOST_STARTS = 8
"""Beginnings of sequences that a message lists."""
Described: TypeAlias = tuple[DataSource, DataDescription]


def data_source(config: object, cache: Path, *, digested: bool = True) -> DataSource:
    """Read the configuration of a data set, and digest its content for a run.

    Relative paths start from the current folder; `cache` is the folder for downloads. No `config` means no data.

    Raises:
        InputError: A file does not exist, or the configuration is wrong.
    """
    if config is None:
        return DataSource()
    source = str(config) if isinstance(config, Path) else config
    parsed = DataConfig.parse(localized(source, cache)).resolved(Path.cwd())
    return DataSource(parsed.to_json(), digest_data(parsed) if digested else "")


@dataclass(frozen=True)
class DescribedData:
    """The data sets of a request, and what workers read of them."""

    sets: DataSets = field(default_factory=DataSets)
    descriptions: Sequence[Described] = ()
    """Of the data sets that there are, each once, the evaluation data first."""
    notes: Sequence[Note] = ()
    """Messages for the user."""
    fed_back: Collection[str] = ()
    """Inputs that take the recurrent state."""
    batch_size: int = 0
    """Items per inference that the data or the measurement name; 0 if none do."""
    is_generated: bool = False
    """True if the evaluation data was generated: it says nothing about the use of the model."""
    is_unread: bool = False
    """True if there may be evaluation data that a plan has not read."""

    @property
    def evaluation(self) -> DataDescription | None:
        """The description of the evaluation data; None without data and for generated data."""
        if self.is_generated:
            return None
        return next((each for source, each in self.descriptions if source is self.sets.evaluation), None)

    def with_own_state(self, cache: Path) -> DescribedData:
        """Feed recurrent state back if the items of the evaluation data follow each other, and note it.

        The data hold the states of the source model, with which the errors of a candidate would not add up.
        """
        evaluation, description = self.sets.evaluation, self.evaluation
        if evaluation.config is None or description is None or not description.state:
            return self
        config = DataConfig.parse({**evaluation.config, **description.state_fields})
        streamed = data_source(config, cache, digested=bool(evaluation.digest))
        sets = replace(self.sets, evaluation=streamed)
        if sets.calibration == evaluation:
            sets = replace(sets, calibration=streamed)
        others = [pair for pair in self.descriptions if pair[0] is not evaluation]
        names = ", ".join(f"{output} -> {name}" for output, name in description.state.items())
        note = f"items follow each other: quality is measured with each model's own recurrent state ({names})"
        if description.starts:
            note += f"; sequences that start with the state in the data: {len(description.starts)}"
        descriptions = [(streamed, description), *others]
        return replace(self, sets=sets, descriptions=descriptions, notes=[*self.notes, Note(note)])

    def checked(
        self, inspection: Inspection, place: str, measurement: Mapping[str, Any], *, has_script: bool
    ) -> DescribedData:
        """Check all data sets against the model, and note what is odd. `place` names data without a path in messages.

        Raises:
            InputError: The model cannot use them.
        """
        notes = list(self.notes)
        measured_states = frozenset((measurement.get("state") or {}).values())
        fed_back = measured_states
        batch_size = int(measurement.get("batch_size") or 0)
        for source, description in self.descriptions:
            config: Mapping[str, Any] = source.config or {}
            states = measured_states.union(config.get("state", {}).values())
            where = str(config.get("path") or place)
            if description.state and not states:
                notes.append(Note(f"{where}: {state_advice(description)}"))
            named = "post_process" in config or has_script
            notes += check_data(description, inspection, where, fed_back=states, named=named)
            fed_back |= states
            batch_size = max(batch_size, int(config.get("batch_size", 0)))
        return replace(self, notes=notes, fed_back=fed_back, batch_size=batch_size)


def state_advice(description: DataDescription) -> str:
    """Say what to write into the data of a DAG so that each model gets its own recurrent state."""
    advice = "items follow each other; "
    if len(description.starts) > MOST_STARTS:
        return f"{advice}'autoopt init MODEL --data FILE' writes the fields that give each model its own state"
    text = ", ".join(f"{name}: {json.dumps(value)}" for name, value in description.state_fields.items())
    return f"{advice}{text} in the data gives each model its own state"
