"""`autoopt serve`: all that an operator needs on one machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from autoopt.settings import settings

CHAINS_PER_CORE = 4
"""Most chains wait for their next trial, and a process that waits is quicker than a new one."""


def serve(  # noqa: PLR0913, PLR0917  options of the command
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but a loopback address requires a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server.")] = 4200,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of chains at once on this machine [default: 4 per core].")
    ] = None,
    zoo: Annotated[Path | None, typer.Option(help="Also schedule a nightly sweep over this zoo.yaml.")] = None,
    cron: Annotated[str, typer.Option(help="With --zoo: cron expression of the sweep.")] = "0 2 * * *",
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin [default: this machine's]."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Serve only this work queue, such as cpu or cuda; may be repeated."),
    ] = None,
) -> None:
    """Start a Prefect server, workers and deployments; stop with Ctrl-C.

    If PREFECT_API_URL is set, no server is started and that one is used.
    """
    from autoopt.engine.sweeps.request import SweepRequest
    from autoopt.orchestrate.deployments import CHAINS, MODELS, check_queues, deploy_all, schedule_sweep
    from autoopt.orchestrate.server.supervisor import Supervisor

    queues = tuple(queue or ())
    check_queues(queues)
    home = settings().home
    with Supervisor(home, host, port, typer.echo, queues=queues) as supervisor:
        supervisor.server()
        names = deploy_all(queues)
        if zoo is not None:
            request = SweepRequest(zoo=zoo, out=Path("out").absolute())
            names.append(schedule_sweep(request, cron, next(iter(queues), None), timezone).deployment)
        typer.echo(f"deployments: {', '.join(names)}")
        supervisor.worker(MODELS)
        supervisor.worker(CHAINS, limit or CHAINS_PER_CORE * (os.cpu_count() or 2))
        typer.echo(f"store: {home}")
        typer.echo("ready; stop with Ctrl-C")
        try:
            supervisor.watch()
        except KeyboardInterrupt:
            typer.echo("stopping")
