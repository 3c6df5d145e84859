"""Data whose items follow each other are measured with each model's own recurrent state."""

from __future__ import annotations

from dataclasses import replace

from autoopt.data.config import DataConfig
from autoopt.engine.inputs.sources import data_source, describe_data
from autoopt.engine.work.problem import DataSets
from autoopt.engine.work.resources import Resources


def with_own_state(data: DataSets, artifact: str, resources: Resources) -> tuple[DataSets, list[str]]:
    """Feed recurrent state back if the items of the evaluation data follow each other.

    The data hold the states of the source model, with which the errors of a candidate would not add up.

    Args:
        data: The data sets.
        artifact: Digest of the source model.
        resources: Store and workers.

    Returns:
        The data sets, and a note if they differ.
    """
    evaluation = data.evaluation
    if evaluation.config is None or evaluation.config.get("state"):
        return data, []
    model_file = resources.store.artifacts.readable(artifact)
    description = describe_data(resources, evaluation, model_file, artifact)
    if description is None or not description.state:
        return data, []
    config = DataConfig.parse(evaluation.config)
    config = replace(config, state=dict(description.state), reset_every=description.reset_every)
    streamed = data_source(config, resources.store.home / "downloads")
    calibration = streamed if data.calibration == evaluation else data.calibration
    names = ", ".join(f"{output} -> {name}" for output, name in description.state.items())
    note = f"items follow each other: quality is measured with each model's own recurrent state ({names})"
    return replace(data, evaluation=streamed, calibration=calibration), [note]
