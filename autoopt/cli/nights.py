"""`autoopt nights`: the history of a zoo."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.store_access import existing_store
from autoopt.json_codec import to_json


def nights(
    zoo: Annotated[
        str | None, typer.Argument(metavar="ZOO", help="Name of a zoo, or its zoo.yaml [default: the only one].")
    ] = None,
    worse: Annotated[
        bool, typer.Option("--worse", help="Only models that regressed, became worse for good, or are flaky.")
    ] = False,
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
    from autoopt.report.table import write_table
    from autoopt.zoo.night_history import history_of
    from autoopt.zoo.nights_text import compare_nights, comparison_table, write_nights
    from autoopt.zoo.stored_nights import night_named, stored_nights, zoo_of

    with existing_store() as store:
        name = zoo_of(store, zoo)
        stored = stored_nights(store, name, limit)
    if compare is not None:
        before, after = (night_named(stored, night) for night in compare)
        comparisons = compare_nights(before, after, worse=worse)
        if as_json:
            models = {name: to_json(comparison) for name, comparison in comparisons.items()}
            print_json({"before": before.sweep, "after": after.sweep, "models": models})
        else:
            write_table(comparison_table(comparisons, f"{before.sweep} -> {after.sweep}"), sys.stdout)
        return
    history = history_of(name, stored, worse=worse)
    if as_json:
        print_json(history)
    else:
        write_nights(history, sys.stdout)
