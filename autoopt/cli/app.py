"""The `autoopt` command: the table of commands, global options, and exit codes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer

from autoopt.errors import EXIT_INTERRUPTED, AutooptError, one_line


class Command(NamedTuple):
    """A command; only the one that is called is imported."""

    module: str
    attribute: str
    """A function, or a Typer object for a group of commands."""
    help: str


COMMANDS: Final[dict[str, Command]] = {
    "init": Command("autoopt.cli.init", "init", "Propose a dag.yaml for a model."),
    "plan": Command("autoopt.cli.plan", "plan", "Show the chains of a DAG, and what was pruned and why."),
    "run": Command("autoopt.cli.run", "run", "Search a DAG for the best model and write it to out/."),
    "resume": Command("autoopt.cli.run", "resume", "Resume interrupted runs."),
    "sweep": Command("autoopt.cli.sweep", "sweep", "Run over a zoo of models and compare with the last sweep."),
    "serve": Command("autoopt.cli.serve", "serve", "Start a Prefect server, workers and deployments."),
    "passes": Command("autoopt.cli.passes", "app", "List passes, show one, or create one from a template."),
    "apply": Command("autoopt.cli.apply", "apply", "Apply one pass to a model."),
    "compare-models": Command("autoopt.cli.compare_models", "compare_models", "Compare two models layer by layer."),
    "runs": Command("autoopt.cli.runs", "runs", "List runs."),
    "best": Command("autoopt.cli.runs", "best", "Show the result of a run: best model and Pareto front."),
    "lineage": Command("autoopt.cli.lineage", "lineage", "Show how a model was made."),
    "replay": Command("autoopt.cli.lineage", "replay", "Rebuild a model from its recipe."),
    "report": Command("autoopt.cli.runs", "report", "Write a run as an HTML page."),
    "compare": Command("autoopt.cli.runs", "compare", "Compare the best models of two runs."),
    "store": Command("autoopt.cli.store", "app", "Verify, clean, measure, export and import the store."),
    "doctor": Command("autoopt.cli.doctor", "doctor", "Check the installation and suggest fixes."),
}
"""By name, in the order of the help page."""
EXIT_INPUT, EXIT_SYSTEM, EXIT_PIPE = 2, 3, 141
UsageError: Any = typer.BadParameter.__base__
"""The parser's base error, which typer does not export."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    0 success, 1 the result falls short (see the command), 2 wrong input, 3 failure of the system or a bug.
    """
    arguments = list(argv if argv is not None else sys.argv[1:]) or ["--help"]
    try:
        code = _call(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_PIPE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except AutooptError as error:
        text, code = str(error), error.exit_code
    except UsageError as error:
        text, code = _usage_text(error), EXIT_INPUT
    except OSError as error:
        text, code = _system_error_text(error), EXIT_SYSTEM
    except Exception as error:
        if os.environ.get("AUTOOPT_DEBUG"):
            raise
        text, code = f"autoopt: internal error: {type(error).__name__}: {error}", EXIT_SYSTEM
        text += "; please report it (AUTOOPT_DEBUG=1 shows the traceback)"
    with suppress(BrokenPipeError):
        sys.stderr.write(one_line(text) + "\n")
    return code


def _usage_text(error: Any) -> str:  # noqa: ANN401  the parser's base error, see `UsageError`
    command = "autoopt"
    if error.ctx:
        command = error.ctx.command_path
    return f"{command}: {error.format_message().rstrip('.')}; see '{command} --help'"


def _system_error_text(error: OSError) -> str:
    text = error.strerror or str(error)
    if error.filename:
        return f"{error.filename}: {text}"
    return text


def build(name: str | None) -> typer.Typer:
    """Create the application with the implementation of one command; the others have only their names and help."""
    app = typer.Typer(
        name="autoopt",
        help="Find the best form of an ONNX model on your hardware by measuring sequences of optimization passes.",
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=False,
    )
    app.callback()(_global_options)
    for command_name, command in COMMANDS.items():
        if command_name != name:
            app.command(command_name, help=command.help)(_not_called)
            continue
        item = getattr(import_module(command.module), command.attribute)
        if isinstance(item, typer.Typer):
            app.add_typer(item, name=name, help=command.help)
        else:
            app.command(name)(item)
    return app


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(version("autoopt"))
        raise typer.Exit


def _global_options(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_show_version, help="Print the version."),
    verbose: bool = typer.Option(False, "--verbose", help="Log what happens to standard error."),
    debug: bool = typer.Option(False, "--debug", help="Log in detail, and show the traceback of an internal error."),
) -> None:
    if debug:
        os.environ["AUTOOPT_DEBUG"] = "1"
    if verbose or debug:
        # Imported only now: `logging` would slow down `autoopt --help`.
        from autoopt.cli.logs import show_logs

        show_logs(debug)


def _not_called() -> None:
    raise AssertionError("only the implementation of the given command is called")


def _call(arguments: list[str]) -> int:
    words = [argument for argument in arguments if not argument.startswith("-")]
    name = None
    if words and words[0] in COMMANDS:
        name = words[0]
    command = typer.main.get_command(build(name))
    code = command.main(args=arguments, prog_name="autoopt", standalone_mode=False)
    if isinstance(code, int):
        return code
    return 0


def _silence_stdout() -> None:
    """Redirect standard output to nowhere, so that the interpreter's flush at exit does not fail once more."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
