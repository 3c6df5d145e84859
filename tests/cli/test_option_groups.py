"""Dataclasses as groups of options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from autoopt.cli.option_groups import with_option_groups


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(min=1, help="Width in pixels.")] = 1
    height: int = 2


@with_option_groups
def draw(name: str, *, size: Size, bold: bool = False) -> None:
    """Draw."""
    typer.echo(f"{name} {size} {bold}")


def output(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(draw)
    return CliRunner().invoke(app, arguments).output


def test_fields_are_options_and_arrive_as_one_record() -> None:
    assert output("box", "--height", "5") == "box Size(width=1, height=5) False\n"
    assert output("box", "--bold") == "box Size(width=1, height=2) True\n"


def test_help_and_checks_of_a_field_apply() -> None:
    assert "Width in pixels." in output("--help")
    assert "--width" in output("box", "--width", "0")
