"""`autoopt bisect`: the cause of a regression, by measuring."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from autoopt.cli.interrupts import ended_by_signals
from autoopt.cli.output import AsJson, document_stream, print_json
from autoopt.cli.run import Quiet
from autoopt.cli.store_access import complete_model, complete_sweep, existing_store
from autoopt.json_codec import to_json


def bisect(
    sweep: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP", help="A sweep's id, the beginning of one, or 'latest'.", autocompletion=complete_sweep
        ),
    ],
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Name of a model in that sweep.", autocompletion=complete_model)
    ],
    minutes: Annotated[float, typer.Option(min=0.1, help="Maximum time for measurements and searches.")] = 5.0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find out by measuring what made a model slower or faster than in the sweep that it was compared with.

    Both nights' best models are measured in turns under combinations of what changed. Earlier versions of libraries
    are installed into environments below AUTOOPT_HOME. The outcome is kept in the sweep's result.
    """
    from autoopt.engine.sweeps.bisection.bisect import bisect as find_cause
    from autoopt.engine.sweeps.bisection.variants import Budget
    from autoopt.report.bisection import write_bisection
    from autoopt.report.progress import Progress

    with document_stream(as_json) as stream:
        with existing_store() as store, Progress(sys.stderr, quiet=quiet) as progress, ended_by_signals():
            bisection = find_cause(store, sweep, model, Budget(minutes, observer=progress))
        if as_json:
            print_json(to_json(bisection), stream)
    if not as_json:
        write_bisection(bisection, sys.stdout)
