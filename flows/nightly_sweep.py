"""Flow `nightly_sweep`: run over a zoo of models and compare. Scheduled by `autoopt sweep --schedule`."""

from __future__ import annotations

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from autoopt.orchestrate.flow_runs.fields import Minutes, Trials, Workers
from autoopt.orchestrate.flow_runs.naming import night_name
from autoopt.orchestrate.flow_runs.sweep_run import Night, nightly


def _name() -> str:
    parameters = flow_run.parameters
    return night_name(parameters.get("zoo"), parameters.get("only"), flow_run.scheduled_start_time)


@flow(name="nightly_sweep", flow_run_name=_name)
def nightly_sweep(  # noqa: PLR0913, PLR0917  these are the fields of the form that starts it
    zoo: str,
    dag: str | None = None,
    only: str | None = None,
    out: str | None = None,
    workers: Workers = 2,
    data_root: str | None = None,
    trials: Trials = None,
    minutes: Minutes = None,
) -> State[None]:
    """Run over a zoo, re-measure each source and its last best model, and fail on a regression.

    Args:
        zoo: path of a zoo.yaml.
        dag: path of a dag.yaml; overrides the zoo's.
        only: run only the models with this tag.
        out: folder for the best models and the report.
        workers: number of trials to run in parallel.
        data_root: folder or URL that relative data paths start from.
        trials: maximum number of trials for each model.
        minutes: maximum time for each model, in minutes.
    """
    return nightly(Night(zoo, dag, only, out, workers, data_root, trials, minutes))
