"""Flow `nightly_sweep`: a zoo of models, compared with the last good night. Scheduled by `autoopt sweep --schedule`."""

from __future__ import annotations

from typing import Any

from prefect import flow

from autoopt.orchestrate.flow_runs.sweep_run import nightly


@flow(name="nightly_sweep", flow_run_name="sweep {zoo}")
def nightly_sweep(
    zoo: str,
    dag: str | None = None,
    only: str | None = None,
    out: str | None = None,
    workers: int = 2,
    data_root: str | None = None,
) -> Any:
    """Run over a zoo, measure every source and last best anew, and fail on a regression.

    Args:
        zoo: path of a zoo.yaml.
        dag: path of a dag.yaml, instead of the zoo's own.
        only: only the models with this tag.
        out: folder for the best models and the report.
        workers: how many trials go on at once.
        data_root: folder or URL that relative paths of data start from.
    """
    return nightly(zoo, dag, only, out, workers, data_root)
