"""Flow `optimize_model`: the best model that a DAG makes of one source model. Deployed by `autoopt serve`."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from autoopt.orchestrate.flow_runs.model_run import optimize
from autoopt.orchestrate.flow_runs.naming import model_run_name


def _name() -> str:
    given = flow_run.parameters
    return model_run_name(given.get("dag"), given.get("model"))


@flow(name="optimize_model", flow_run_name=_name)
def optimize_model(
    dag: str | dict[str, Any],
    model: str | None = None,
    data: str | dict[str, Any] | None = None,
    calibration: str | dict[str, Any] | None = None,
    search: dict[str, Any] | None = None,
    out: str | None = None,
    workers: int = 2,
    retry_failed: bool = False,
) -> Any:
    """Search a DAG for one model, each chain in a flow run of its own.

    Args:
        dag: path of a dag.yaml, or what it says.
        model: path or URL of the source model; overrides the DAG's.
        data: evaluation data; overrides the DAG's.
        calibration: calibration data; overrides the DAG's.
        search: fields of the DAG's `search:` that are other for this run, such as `trials`.
        out: folder for the best model, its session options and recipe.
        workers: how many trials go on at once.
        retry_failed: whether failures of earlier runs are tried again.
    """
    return optimize(dag, model, data, calibration, search, out, workers, retry_failed)
