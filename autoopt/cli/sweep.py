"""`autoopt sweep`: a zoo of models, once or every night."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, print_json, stdout_kept
from autoopt.cli.run import DataRoot, EngineName, Quiet, Workers
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.engine.sweeps.request import SweepRequest
    from autoopt.results import SweepResult
from autoopt.json_codec import to_json


def sweep(
    zoo: Annotated[Path, typer.Argument(metavar="ZOO", help="A zoo.yaml or JSON file.")],
    dag: Annotated[str | None, typer.Option(help="Instead of the zoo's own DAG; a model's own stays.")] = None,
    only: Annotated[str | None, typer.Option(metavar="TAG", help="Only the models with this tag.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last sweep, which was interrupted.")] = False,
    nightly: Annotated[
        bool, typer.Option("--nightly", help="Measure every source and every last best model anew.")
    ] = False,
    accept: Annotated[bool, typer.Option("--accept", help="What is worse counts as good from now on.")] = False,
    schedule: Annotated[
        str | None, typer.Option(metavar="CRON", help='Deploy it to Prefect as nightly sweep: "0 2 * * *".')
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="LABEL", help="With --schedule: on machines that work for this queue.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Of --schedule, such as Europe/Berlin; else this machine's.")
    ] = None,
    data_root: DataRoot = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the best models and the report.")] = Path("out"),
    engine: EngineName = "prefect",
    workers: Workers = 2,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Run over a zoo of models and compare with the last good sweep; what has not changed is not done again.

    Leaves the best models, sweep.json and sweep.html in out/. Exit code 1 on a regression.
    """
    from autoopt.engine.sweeps.zoo import check_zoo

    if schedule is None and (queue is not None or timezone is not None):
        option = "--queue" if queue is not None else "--timezone"
        raise InputError("is of a schedule, and there is none", where=option, remedy="add --schedule '0 2 * * *'")
    check_zoo(zoo, only, dag, data_root)  # before anything is started for it
    from autoopt.api import open_remote
    from autoopt.engine.sweeps.request import SweepRequest

    request = SweepRequest(
        zoo=zoo,
        dag=dag,
        only=only,
        resume=resume,
        nightly=nightly,
        accept=accept,
        out=out,
        workers=workers,
        data_root=data_root,
        opener=open_remote,
    )
    if schedule is not None:
        return _schedule(request, schedule, queue, timezone, as_json)
    with ExitStack() as stack:
        stream = stack.enter_context(stdout_kept()) if as_json else sys.stdout
        result = _carry_out(request, engine, quiet)
        if as_json:
            print_json(result.to_json(), stream)
        else:
            from autoopt.report.sweep import write_sweep

            write_sweep(result, sys.stdout)
            typer.echo(f"wrote {out / 'sweep.html'}, {out / 'sweep.json'}")
    return 1 if result.failed else 0


def _carry_out(request: SweepRequest, engine: str, quiet: bool) -> SweepResult:
    from dataclasses import replace

    from autoopt.report.progress import Progress

    with Progress(sys.stderr, quiet=quiet) as progress:
        request = replace(request, observer=progress)
        if engine == "inline":
            from autoopt.engine.sweeps.sweep import run_sweep

            return run_sweep(request)
        from autoopt.orchestrate.server.startup import PrefectStart

        PrefectStart().wait()  # sets Prefect's environment before anything imports it
        from autoopt.orchestrate.flow_runs.sweep_run import sweep_as_flow

        return sweep_as_flow(request)


def _schedule(request: SweepRequest, cron: str, queue: str | None, timezone: str | None, as_json: bool) -> int:
    from autoopt.orchestrate.deployments import schedule_sweep

    schedule = schedule_sweep(request, cron, queue, timezone)
    if as_json:
        print_json(to_json(schedule))
    else:
        typer.echo(f"deployed {schedule.deployment}, {schedule.cron} {schedule.timezone}; see {schedule.url}")
    return 0
