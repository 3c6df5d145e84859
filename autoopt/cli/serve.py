"""`autoopt serve`: a Prefect server on this machine that executes deployments of autoopt's flows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from autoopt.errors import InputError
from autoopt.script import SCRIPT_FOLDERS
from autoopt.settings import settings


def serve(  # noqa: PLR0913, PLR0917  options of the command
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; other machines can reach any but a loopback address."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server.")] = 4200,
    models: Annotated[int, typer.Option(min=1, help="Maximum number of runs of models at once.")] = 2,
    chains: Annotated[
        int,
        typer.Option(
            min=0,
            help="Deploy chains too, at most this many at once: each gets a Cancel and a Retry of its own, and takes "
            "10 to 20 s to start. 0: chains are subflows of their model's run.",
        ),
    ] = 0,
    zoo: Annotated[Path | None, typer.Option(help="Also schedule a nightly sweep over this zoo.yaml.")] = None,
    cron: Annotated[str, typer.Option(metavar="CRON", help="With --zoo: cron expression of the sweep.")] = "0 2 * * *",
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin [default: this machine's]."),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Deploy to this work pool, whose workers execute the runs, instead of here."),
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
) -> None:
    """Start a Prefect server with autoopt's deployments and execute their runs; stop with Ctrl-C.

    If PREFECT_API_URL is set, no server is started and that one is used.
    """
    from autoopt.deployments import Night, Plan, deployments_of
    from autoopt.orchestrate.names import Place
    from autoopt.orchestrate.serve import execute, server

    night = None if zoo is None else Night.of(zoo, cron, timezone)
    if pool is not None and not os.environ.get("PREFECT_API_URL"):
        raise InputError("needs a server of its own", where="--pool", remedy="set PREFECT_API_URL")
    home = settings().home
    home.mkdir(parents=True, exist_ok=True)
    os.environ["AUTOOPT_HOME"] = str(home)
    if scripts:
        os.environ[SCRIPT_FOLDERS] = os.pathsep.join(str(folder.resolve()) for folder in scripts)
    plan = Plan(Place.here() if pool is None else Place.in_pool(pool), models, chains, night)
    with server(home, host, port, typer.echo):
        deployments = deployments_of(plan)
        typer.echo(f"deployments: {', '.join(one.full_name for one in deployments)}")
        typer.echo(f"scripts: {os.environ.get(SCRIPT_FOLDERS) or 'none run; name their folder with --scripts DIR'}")
        typer.echo(f"store: {home}")
        if pool is not None:
            typer.echo(f"start a worker: prefect worker start --pool {pool} --limit {plan.limit}")
            return
        typer.echo("ready; stop with Ctrl-C")
        execute(deployments, plan.limit)
        typer.echo("stopped")
