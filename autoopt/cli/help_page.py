"""Help pages: commands and options in groups, values and arguments by names instead of types."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import typer
from typer.core import TyperCommand, TyperGroup

VALUE_NAMES: Final = {
    "<int>": "N",
    "<int range>": "N",
    "<float>": "X",
    "<float range>": "X",
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<path>": "PATH",
    "<file>": "FILE",
}
"""Typer's name of a type -> what stands for a value of it, unless the option names its values itself."""
OPTIONS: Final = "Options"
"""Title of the options without a group."""


class Formatter(Protocol):
    """The part of the formatter of help pages that is used here; typer does not export its class."""

    width: int

    def section(self, name: str) -> AbstractContextManager[None]:
        """A context for writing below a title."""

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None:
        """Write names with their texts, in two columns."""


class HelpCommand(TyperCommand):
    """A command whose options may be in groups (`rich_help_panel`)."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """The options and arguments of the usage line, without typer's braces around required ones."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: typer.Context, formatter: Formatter) -> None:  # type: ignore[override]
        """Write arguments, and options by group."""
        _write_parameters(self, ctx, formatter)


class HelpGroup(TyperGroup):
    """A command with commands, which may be in groups (`rich_help_panel`)."""

    def format_options(self, ctx: typer.Context, formatter: Formatter) -> None:  # type: ignore[override]
        """Write options and commands."""
        _write_parameters(self, ctx, formatter)
        groups: dict[str, list[tuple[str, str]]] = {}
        limit = formatter.width - max(map(len, self.commands)) - 6
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            groups.setdefault(panel, []).append((name, command.get_short_help_str(limit)))
        _write_groups(groups, formatter, max(map(len, self.commands)))


def set_help_pages(app: typer.Typer) -> None:
    """Give an application, its commands and its groups these help pages."""
    app.info.cls = HelpGroup
    for command in app.registered_commands:
        command.cls = HelpCommand
    for group in app.registered_groups:
        group.cls = HelpGroup
        if group.typer_instance is not None:
            set_help_pages(group.typer_instance)


def _write_parameters(command: TyperCommand | TyperGroup, ctx: typer.Context, formatter: Formatter) -> None:
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is None:
            continue
        name, text = record
        title = getattr(parameter, "rich_help_panel", None) or OPTIONS
        if parameter.param_type_name == "argument":
            name, title = parameter.metavar or str(parameter.name).upper(), "Arguments"
        for kind, value in VALUE_NAMES.items():
            name = name.replace(kind, value)
        name = name.replace("<", "").replace(">", "")  # of choices
        groups.setdefault(title, []).append((name, text))
    _write_groups(groups, formatter)


def _write_groups(groups: dict[str, list[tuple[str, str]]], formatter: Formatter, width: int = 0) -> None:
    """Write each group below its title, names with at least `width` characters."""
    for title, rows in groups.items():
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), text) for name, text in rows])
