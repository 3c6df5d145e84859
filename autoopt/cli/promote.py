"""`autoopt promote`: the models of a zoo that are in use."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_json, print_result
from autoopt.cli.store_access import existing_store
from autoopt.errors import InputError


def promote(  # noqa: PLR0913, PLR0917  options of the command
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL|RUN", help="A model of the newest sweep, also as ZOO/MODEL, or a run's id."),
    ] = None,
    trial: Annotated[
        int | None, typer.Argument(min=0, metavar="TRIAL", help="Number of a trial [default: the best model].")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="Publish there: a folder, a URL such as s3://bucket/cnn, or mlflow:NAME; may be repeated "
            "[default: the places of its last release].",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="ZOO/MODEL", help="For a run that no sweep made: what it is a release of.")
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="NAME", help="Release the best model for this target.")] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Go back to the previous release of the model, at the same places.")
    ] = False,
    every: Annotated[bool, typer.Option("--list", help="List current and past releases.")] = False,
    as_json: AsJson = False,
) -> None:
    """Release a model of a zoo. From then on, nights compare with it.

    A model that failed or became worse in the newest sweep is refused; promote it by the id of its run instead.
    """
    from autoopt.zoo.releases import Promotion, release_text, roll_back
    from autoopt.zoo.releases import promote as release_model

    if every:
        _list_releases(as_json)
        return
    if model is None:
        raise InputError("name a model", where="MODEL", remedy="'autoopt promote --list' shows what is released")
    with existing_store() as store:
        if undo:
            taken_back, release = roll_back(store, model)
            text = f"took back {taken_back.name}; released again {release_text(release)}"
            print_result({"taken_back": taken_back.number, **release.to_json()}, text, as_json)
            return
        release = release_model(store, Promotion(model, trial, target, name, tuple(to or ())))
    print_result(release.to_json(), f"released {release_text(release)}", as_json)


def _list_releases(as_json: bool) -> None:
    from autoopt.report.table import write_table
    from autoopt.zoo.releases import release_rows, releases_table

    with existing_store() as store:
        rows = release_rows(store)
    if as_json:
        print_json([{**row.release.to_json(), "current": row.current} for row in rows])
    elif rows:
        write_table(releases_table(rows), sys.stdout)
    else:
        typer.echo("nothing is released; 'autoopt promote MODEL' releases a model")
