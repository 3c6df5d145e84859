"""`autoopt replay`: make a model again from its recipe."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_json


def replay(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe.json that a run left.")],
    model: Annotated[str, typer.Option(help="The source model that the recipe begins with.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model.")] = Path("replayed"),
    data: Annotated[str | None, typer.Option(help="Calibration data in place of the recipe's.")] = None,
    as_json: AsJson = False,
) -> int:
    """Make a model again from its recipe; exit code 1 where its bytes are not the same."""
    from autoopt.engine.tools.maintenance import replay as make

    made = make(recipe, model, out, data)
    if as_json:
        print_json(asdict(made))
    else:
        typer.echo(f"wrote {made.path}: {'the same bytes' if made.same else 'not the same bytes'}")
        for name, (then, now) in made.changed.items():
            typer.echo(f"  {name} was {then}, is {now}")
    return 0 if made.same else 1
