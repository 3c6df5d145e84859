"""`autoopt store quarantine`: work that is not run because it killed its workers."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.output import AsJson, example_text, print_json
from autoopt.cli.store_access import existing_store
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.problem.stored_quarantine import Quarantined

app = typer.Typer(rich_markup_mode=None, no_args_is_help=False)


@app.command("list", epilog=example_text("autoopt store quarantine list"))
def list_(as_json: AsJson = False) -> None:
    """List work that is not run again because it killed two workers."""
    from autoopt.problem.stored_quarantine import quarantined

    with existing_store() as store:
        items = quarantined(store)
    if as_json:
        print_json(items)
    elif not items:
        typer.echo("nothing is in quarantine")
    else:
        _write_table(items)


@app.command(epilog=example_text("autoopt store quarantine lift 1f2e3d4c5b6a", "autoopt store quarantine lift --all"))
def lift(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids, or beginnings of ids.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Lift the whole quarantine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Lift the quarantine of work, so that it is tried again."""
    from autoopt.problem.stored_quarantine import lift as lift_quarantine

    if bool(ids) == everything:
        remedy = "give ids from 'autoopt store quarantine list', or --all"
        raise InputError("name what to lift", where="ID", remedy=remedy)
    with existing_store() as store:
        lifted = lift_quarantine(store, ids or ())
    if as_json:
        print_json(lifted)
        return
    for item in lifted:
        typer.echo(f"lifted: {item.name}")
    if not lifted:
        typer.echo("nothing is in quarantine")


def _write_table(items: Sequence[Quarantined]) -> None:
    from autoopt.report.table import Table, write_table
    from autoopt.workers.quarantine import SHORT

    rows: list[tuple[str, ...]] = []
    for item in items:
        expires = time.strftime("%Y-%m-%d", time.localtime(item.expires))
        rows.append((item.id[:SHORT], item.name, str(item.deaths), expires, item.message))
    write_table(Table(("id", "work", "deaths", "expires", "last death"), tuple(rows)), sys.stdout)
