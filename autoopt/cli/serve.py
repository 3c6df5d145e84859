"""`autoopt serve`: all that an operator needs on one machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from autoopt.script import SCRIPT_FOLDERS
from autoopt.settings import settings

CHAINS_PER_CORE = 4
"""Most chains wait for their next trial, and a process that waits is quicker than a new one."""


def serve(  # noqa: PLR0913, PLR0917  options of the command
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; other machines can reach any but a loopback address."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server.")] = 4200,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of chains at once on this machine [default: 4 per core].")
    ] = None,
    zoo: Annotated[Path | None, typer.Option(help="Also schedule a nightly sweep over this zoo.yaml.")] = None,
    cron: Annotated[str, typer.Option(metavar="CRON", help="With --zoo: cron expression of the sweep.")] = "0 2 * * *",
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin [default: this machine's]."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Serve only this work queue, such as cpu or cuda; may be repeated."),
    ] = None,
    scripts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Run user scripts and interpreters only from this folder; may be repeated [default: none].",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Prefect's database: a PostgreSQL URL, 'postgresql' to start one, or 'sqlite' "
            "[default: postgresql if it is installed].",
        ),
    ] = None,
    no_password: Annotated[
        bool,
        typer.Option("--no-password", help="Let every user and program of this machine use the server; loopback only."),
    ] = False,
) -> None:
    """Start a Prefect server, workers and deployments; stop with Ctrl-C.

    The first start makes a password and shows it. If PREFECT_API_URL is set, no server is started and that one is used.
    """
    from autoopt.deployments import CHAINS, MODELS, check_queues, deploy_all, schedule_sweep
    from autoopt.engine.sweeps.request import SweepRequest
    from autoopt.engine.sweeps.zoo import check_zoo
    from autoopt.orchestrate.server.form_refresh import FormRefresh
    from autoopt.orchestrate.server.supervisor import Supervisor

    queues = tuple(queue or ())
    check_queues(queues)
    if zoo is not None:
        check_zoo(zoo)
    home = settings().home
    if scripts:
        os.environ[SCRIPT_FOLDERS] = os.pathsep.join(str(folder.resolve()) for folder in scripts)
    with Supervisor(
        home, host, port, typer.echo, queues=queues, password=not no_password, database=database
    ) as supervisor:
        supervisor.server()
        forms = FormRefresh(supervisor.api, Path.cwd())
        names = deploy_all(queues)
        if zoo is not None:
            request = SweepRequest(zoo=zoo, out=Path("out").absolute())
            names.append(schedule_sweep(request, cron, next(iter(queues), None), timezone).deployment)
        typer.echo(f"deployments: {', '.join(names)}")
        supervisor.worker(MODELS)
        supervisor.worker(CHAINS, limit or CHAINS_PER_CORE * (os.cpu_count() or 2))
        typer.echo(f"scripts: {os.environ.get(SCRIPT_FOLDERS) or 'none run; name their folder with --scripts DIR'}")
        typer.echo(f"store: {home}")
        typer.echo("ready; stop with Ctrl-C")
        try:
            supervisor.watch(forms.look)
        except KeyboardInterrupt:
            typer.echo("stopping")
