"""Flow `optimize_model`: find the best model that a DAG makes of one source model. Deployed by `autoopt serve`."""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from autoopt.engine.inputs.request import Remeasure, RunRequest
from autoopt.orchestrate.flow_runs.fields import Minutes, Trials, Workers
from autoopt.orchestrate.flow_runs.model_run import optimize
from autoopt.orchestrate.flow_runs.naming import model_run_name


def _name() -> str:
    parameters = flow_run.parameters
    return model_run_name(parameters.get("dag"), parameters.get("model"))


@flow(name="optimize_model", flow_run_name=_name)
def optimize_model(  # noqa: PLR0913, PLR0917  these are the fields of the form that starts it
    dag: str | dict[str, object],
    model: str | None = None,
    data: str | dict[str, object] | None = None,
    calibration: str | dict[str, object] | None = None,
    search: dict[str, object] | None = None,
    out: str | None = None,
    workers: Workers = 2,
    retry_failed: bool = False,
    trials: Trials = None,
    minutes: Minutes = None,
    remeasure: Remeasure | None = None,
) -> State[None]:
    """Search a DAG for one model, each chain in a flow run of its own.

    Args:
        dag: path of a dag.yaml, or its content.
        model: path or URL of the source model; overrides the DAG's.
        data: evaluation data; overrides the DAG's.
        calibration: calibration data; overrides the DAG's.
        search: fields of the DAG's `search` section to override, such as `trials`.
        out: folder for the best model, its session options and its recipe.
        workers: number of trials to run in parallel.
        retry_failed: retry trials that failed in earlier runs.
        trials: maximum number of trials; overrides the DAG's.
        minutes: maximum time of the run, in minutes; overrides the DAG's.
        remeasure: measure candidates again: those still undecided, or all.
    """
    limits = {name: value for name, value in {"trials": trials, "minutes": minutes}.items() if value is not None}
    request = RunRequest(
        dag=dag,
        model=model,
        data=data,
        calibration=calibration,
        search={**(search or {}), **limits},
        workers=workers,
        retry_failed=retry_failed,
        remeasure=remeasure,
        out=None if out is None else Path(out),
    )
    return optimize(request)
