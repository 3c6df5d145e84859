"""`autoopt nights`: the history of a zoo."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.store_access import existing_store


def nights(
    zoo: Annotated[str | None, typer.Argument(help="Name of a zoo [default: the only one].")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of nights, the newest ones.")] = 60,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SWEEP SWEEP", help="Compare two nights by their sweeps' ids; or 'latest'."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the sweeps of a zoo over time: nights, models, lasting changes and flaky models.

    'autoopt report --zoo NAME' writes the same as a page with plots.
    """
    from autoopt.engine.sweeps.nights import night_named, stored_nights, zoo_of
    from autoopt.json_codec import to_json
    from autoopt.report.night_history import history_of
    from autoopt.report.nights import compare_nights, comparison_table, write_nights
    from autoopt.report.table import write_table

    with existing_store() as store:
        name = zoo_of(store, zoo)
        stored = stored_nights(store, name, limit)
    if compare is not None:
        before, after = (night_named(stored, night) for night in compare)
        if as_json:
            models = {model: comparison.to_json() for model, comparison in compare_nights(before, after).items()}
            print_json({"before": before.sweep, "after": after.sweep, "models": models})
        else:
            write_table(comparison_table(before, after), sys.stdout)
        return
    history = history_of(name, stored)
    if as_json:
        print_json(to_json(history))
    else:
        write_nights(history, sys.stdout)
