"""`autoopt resume`: continue what was interrupted."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_json, stdout_kept
from autoopt.cli.run import DataRoot, EngineName, Out, Quiet, show_result
from autoopt.cli.store_access import need_store
from autoopt.settings import settings


def resume(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run's id; all interrupted ones if none.")
    ] = None,
    data_root: DataRoot = None,
    out: Out = Path("out"),
    engine: EngineName = "prefect",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Continue a run that was interrupted; what it had done is not done again.

    Exit code 1 where no model meets the constraints.
    """
    from autoopt.api import resume as carry_on
    from autoopt.report.progress import Progress

    need_store()
    with ExitStack() as stack:
        stream = stack.enter_context(stdout_kept()) if as_json else sys.stdout
        with Progress(sys.stderr, quiet=quiet) as progress:
            results = carry_on(run, out=out, engine=engine, observer=progress, data_root=data_root)
        if as_json:
            print_json([result.to_json() for result in results], stream)
        elif not results:
            typer.echo(f"nothing was interrupted{_cancelled()}")
        else:
            for result in results:
                show_result(result, out)
    return 0 if all(result.best for result in results) else 1


def _cancelled() -> str:
    """That there is one that somebody cancelled, which only goes on by its name."""
    from autoopt.store import open_store

    with open_store(settings().db_url, settings().home) as store:
        newest = next((record for record in store.runs.all(status="cancelled") if record.parent is None), None)
    if newest is None:
        return ""
    return f"; run {newest.id} was cancelled, 'autoopt resume {newest.id}' goes on with it"
