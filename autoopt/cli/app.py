"""The `autoopt` command: the table of commands, global options, and exit codes of errors."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, TextIO

import typer

from autoopt.cli.completion import words_to_complete
from autoopt.cli.help_page import set_help_pages
from autoopt.cli.interrupts import ended_by_signals
from autoopt.cli.output import USAGE_ERROR, example_text, show_logs
from autoopt.errors import EXIT_INTERRUPTED, MAX_PATH_CHARS, AutooptError, InputError, bug_text, one_line
from autoopt.json_codec import from_json
from autoopt.option_names import speak_command_line


@dataclass(frozen=True)
class Command:
    """A command; only the one that is called is imported."""

    place: str
    """`module:attribute` below `autoopt.cli`: a function, or a Typer object for a group of commands."""
    help: str
    examples: Sequence[str]
    """Command lines for its help."""


COMMAND_GROUPS: Final = from_json(
    dict[str, dict[str, Command]], json.loads(Path(__file__).with_name("commands.json").read_bytes())
)
"""By title of the group and name, in the order of the help page."""
COMMANDS: Final = {name: command for group in COMMAND_GROUPS.values() for name, command in group.items()}
GLOBAL_FLAGS: Final = ("--verbose", "--debug", "--no-color")
"""Flags accepted before and after the name of the command."""
EXIT_INPUT, EXIT_SYSTEM, EXIT_PIPE = 2, 3, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    0 success, 1 the result falls short (see the command), 2 wrong input, 3 failure of the system or a bug.
    """
    speak_command_line()
    _open_closed_streams()
    _escape_unknown_characters()
    code = _run(list(argv if argv is not None else sys.argv[1:]) or ["--help"])
    if not _accepts(sys.stderr):
        _silence(sys.stderr)
    return code


def _run(arguments: list[str]) -> int:
    """Call the command; report errors."""
    try:
        with ended_by_signals():
            code = _call(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence(sys.stdout)
        return EXIT_PIPE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except InputError as error:
        text, code = "\n".join(map(str, (error, *error.others))), error.exit_code
    except AutooptError as error:
        text, code = str(error), error.exit_code
    except USAGE_ERROR as error:
        text, code = _usage_text(error), EXIT_INPUT
    except OSError as error:
        text, code = _system_error_text(error), EXIT_SYSTEM
        if error.errno == errno.ENAMETOOLONG or _is_forbidden(error):
            code = EXIT_INPUT
    except Exception as error:
        if os.environ.get("AUTOOPT_DEBUG"):
            raise
        text, code = f"autoopt: {bug_text(error)}", EXIT_SYSTEM
        text += "; please report it (AUTOOPT_DEBUG=1 shows the traceback)"
    from autoopt.settings import without_passwords  # only now, because most commands end without an error

    # An address where a command takes only a path may have a password, too.
    text = "\n".join(map(one_line, without_passwords(text).split("\n")))
    with suppress(OSError):  # without a place for the message, the exit code tells
        sys.stderr.write(text + "\n")
    return code


def _usage_text(error: Any) -> str:  # noqa: ANN401  see `USAGE_ERROR`
    """The first mistake on a command line, and where the help is."""
    command = error.ctx.command_path if error.ctx else "autoopt"
    # These replacements are for the words of pydantic.
    message = error.format_message().rstrip(".").partition(", unable to parse")[0]
    message = message.replace(": Value error, ", ": ").replace("Input should be", "must be")
    return f"{command}: {message}; see '{command} --help'"


def _system_error_text(error: OSError) -> str:
    text = error.strerror or str(error)
    if error.filename:
        text = f"{str(error.filename)[:MAX_PATH_CHARS]}: {text}"
        if _is_forbidden(error):
            return f"{text}; give your user access to it"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and _is_in_store(str(error.filename)):
            text += "; set AUTOOPT_HOME to a folder that you can write to"
        return text
    if error.errno in (errno.ENOSPC, errno.EBADF, errno.EIO):
        _silence(sys.stdout)
        return f"cannot write the output: {text}"
    if error.errno == errno.ENOENT:  # only os.getcwd() names no file
        return "the current folder was removed; change to another one"
    return text


def _is_forbidden(error: OSError) -> bool:
    """True if the user named a file or folder without having access to it."""
    if error.errno not in (errno.EACCES, errno.EPERM) or not error.filename:
        return False
    return not _is_in_store(str(error.filename))


def _is_in_store(path: str) -> bool:
    from autoopt.settings import settings

    return Path(path).absolute().is_relative_to(settings().home.absolute())


def build(name: str | None) -> typer.Typer:
    """Create the application with the implementation of one command; the others have only their names and help."""
    app = typer.Typer(
        name="autoopt",
        help="Find the best form of an ONNX model on your hardware by measuring sequences of optimization passes.",
        rich_markup_mode=None,
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=example_text("autoopt run model.onnx", "autoopt run model.onnx --data test.npz"),
    )
    app.callback()(_global_options)
    for title, commands in COMMAND_GROUPS.items():
        for command_name, command in commands.items():
            if command_name == name:
                _add(app, name, command)
            else:
                app.command(command_name, help=command.help, rich_help_panel=title)(_not_called)
    set_help_pages(app)
    return app


def _add(app: typer.Typer, name: str, command: Command) -> None:
    """Add a command with its implementation."""
    module, _, attribute = command.place.partition(":")
    item = getattr(import_module(f"autoopt.cli.{module}"), attribute)
    epilog = example_text(*command.examples)
    if isinstance(item, typer.Typer):
        app.add_typer(item, name=name, help=command.help, epilog=epilog)
    else:
        app.command(name, epilog=epilog)(item)


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(version("autoopt"))
        raise typer.Exit


def _global_options(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_show_version, help="Print the version."),
    verbose: bool = typer.Option(False, "--verbose", help="Log to standard error, and print all details of a result."),
    no_color: bool = typer.Option(False, "--no-color", help="Print without colors, as NO_COLOR=1 does."),
    debug: bool = typer.Option(False, "--debug", help="Log in detail, and show the traceback of an internal error."),
) -> None:
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if debug:
        os.environ["AUTOOPT_DEBUG"] = "1"
    if verbose or debug:
        show_logs(debug)


def _not_called() -> None:
    raise AssertionError("only the implementation of the given command is called")


def _call(arguments: list[str]) -> int:
    arguments = _with_global_flags_first(arguments)
    given = words_to_complete() or arguments
    words = [argument for argument in given if not argument.startswith("-")]
    name = words[0] if words and words[0] in COMMANDS else None
    command = typer.main.get_command(build(name))
    try:
        code = command.main(args=arguments, prog_name="autoopt", standalone_mode=False)
    except SystemExit as error:  # the parser exits with 1 if nobody reads standard output any more
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    if isinstance(code, int):
        return code
    return 0


def _with_global_flags_first(arguments: list[str]) -> list[str]:
    """The arguments with the flags that every command has in the place where the parser wants them."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flags = [argument for argument in arguments[:end] if argument in GLOBAL_FLAGS]
    others = [argument for argument in arguments[:end] if argument not in GLOBAL_FLAGS]
    return [*flags, *others, *arguments[end:]]


def _open_closed_streams() -> None:
    """Open /dev/null for standard streams that are closed, so that no other file takes their place."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number, inheritable=True)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _escape_unknown_characters() -> None:
    """Escape characters that an encoding lacks: file names need not be UTF-8, and terminals may be ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _accepts(stream: TextIO) -> bool:
    """True if what was written to a stream so far can be flushed."""
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _silence(stream: TextIO) -> None:
    """Redirect a stream to nowhere, so that the interpreter's flush at exit does not fail once more."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
