"""`autoopt serve`: everything an operator needs on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autoopt.settings import settings

PLACES = 4
"""Chains for each core: most of them wait for their next trial, and a process that waits is quicker than a new one."""


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback need a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server.")] = 4200,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many chains at once here; else four per core.")
    ] = None,
    zoo: Annotated[Path | None, typer.Option(help="Also schedule a nightly sweep over this zoo.yaml.")] = None,
    cron: Annotated[str, typer.Option(help="When to sweep over --zoo.")] = "0 2 * * *",
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Of --cron, such as Europe/Berlin; else this machine's.")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Work only for this work queue, such as cpu, cuda; may be repeated."),
    ] = None,
) -> None:
    """Bring up the Prefect server (or use the one in PREFECT_API_URL), workers and deployments; Ctrl-C ends all."""
    from autoopt.orchestrate.deployments import check_queues
    from autoopt.orchestrate.server.supervisor import Supervisor

    check_queues(queue or ())

    say = _say
    with Supervisor(settings().home, host, port, say, queues=tuple(queue or ())) as served:
        served.server()
        _deploy(served, limit, zoo, cron, timezone)
        say(f"store: {settings().home}")
        say("ready; Ctrl-C ends it")
        try:
            served.watch()
        except KeyboardInterrupt:
            say("ending")


def _deploy(served: Any, limit: int | None, zoo: Path | None, cron: str, timezone: str | None) -> None:
    import os

    from autoopt.engine.sweeps.request import SweepRequest
    from autoopt.orchestrate.deployments import CHAINS, MODELS, deploy_all, schedule_sweep

    names = deploy_all(served.queues)
    if zoo is not None:
        request, first = SweepRequest(zoo=zoo, out=Path("out").absolute()), next(iter(served.queues), None)
        names.append(schedule_sweep(request, cron, first, timezone).deployment)
    served.say(f"deployments: {', '.join(names)}")
    served.worker(MODELS)
    served.worker(CHAINS, limit or PLACES * (os.cpu_count() or 2))


def _say(text: str) -> None:
    typer.echo(text)
