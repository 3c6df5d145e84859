"""Groups of options: of the commands that propose a graph for a bare model, and as dataclasses in general."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from autoopt.cli.option_groups import ProposalFlags, accelerator_of, with_option_groups
from autoopt.spec.proposal_options import ProposalOptions


def test_without_options_the_proposal_is_the_default() -> None:
    assert ProposalFlags().options() == ProposalOptions()


@pytest.mark.parametrize(
    ("device", "provider", "expected"),
    [
        (None, None, ("cpu", "CPUExecutionProvider")),
        ("gpu", None, ("gpu", "CUDAExecutionProvider")),
        (None, "cuda", ("gpu", "CUDAExecutionProvider")),
        (None, "CUDAExecutionProvider", ("gpu", "CUDAExecutionProvider")),
    ],
)
def test_device_and_provider_follow_from_each_other(
    device: str | None, provider: str | None, expected: tuple[str, str]
) -> None:
    accelerator = accelerator_of(device, provider)
    assert (accelerator.device, accelerator.execution_provider) == expected


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
