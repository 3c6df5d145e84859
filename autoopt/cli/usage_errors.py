"""All mistakes on a command line; the parser stops at the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoopt.cli.output import USAGE_ERROR


def usage_text(error: Any, arguments: Sequence[str]) -> str:  # noqa: ANN401  see `USAGE_ERROR`
    """One line for each mistake on the command line, of which `error` is the first; the last one names the help."""
    command = error.ctx.command_path if error.ctx else "autoopt"
    lines = dict.fromkeys(f"{command}: {_message(mistake)}" for mistake in _mistakes(error, arguments))
    return "\n".join(lines) + f"; see '{command} --help'"


def _message(error: Any) -> str:  # noqa: ANN401
    message: str = error.format_message().rstrip(".")
    if message.startswith("Missing argument") and error.ctx is not None:
        message += f" of '{_usage(error.ctx)}'"
    message = message.partition(", unable to parse")[0]  # this and the next two: pydantic's words
    return message.replace(": Value error, ", ": ").replace("Input should be", "must be")


def _usage(context: Any) -> str:  # noqa: ANN401
    """A command with its arguments, without its options."""
    pieces = context.command.collect_usage_pieces(context)
    return " ".join([context.command_path, *(piece for piece in pieces if piece != "[OPTIONS]")])


def _mistakes(error: Any, arguments: Sequence[str]) -> list[Any]:  # noqa: ANN401
    """The error and those that follow it, if a single command was parsed."""
    context = error.ctx
    if context is None or hasattr(context.command, "commands"):
        return [error]
    mistakes = [error]
    values = _parse_rest(context, arguments, mistakes)
    if values is None:
        return mistakes
    unknown_options = len(mistakes) > 1
    for parameter in context.command.get_params(context):
        # The values of unknown options look like arguments.
        if parameter.is_eager or (unknown_options and parameter.param_type_name == "argument"):
            continue
        try:
            parameter.handle_parse_result(context, values, [])
        except USAGE_ERROR as mistake:
            mistakes.append(mistake)
    return mistakes


def _parse_rest(context: Any, arguments: Sequence[str], mistakes: list[Any]) -> dict[str, Any] | None:  # noqa: ANN401
    """The values of a command line without unknown options, which join the mistakes; None if it cannot be parsed."""
    words = _words_after(context.command_path, arguments)
    parser = context.command.make_parser(context)
    while True:
        try:
            values, _, _ = parser.parse_args(list(words))
        except USAGE_ERROR as mistake:
            mistakes.append(mistake)
            others = [word for word in words if word.partition("=")[0] != getattr(mistake, "option_name", None)]
            if len(others) == len(words):  # such as a letter in a group of flags
                return None
            words = others
        else:
            return dict(values)


def _words_after(command_path: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, without its own name, that of its group and the global flags before them."""
    start = 0
    for name in command_path.split()[1:]:
        start = arguments.index(name, start) + 1
    return list(arguments[start:])
