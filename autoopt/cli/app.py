"""The `autoopt` command: which command lives where, and what becomes of an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import typer

from autoopt.errors import EXIT_INTERRUPTED, AutooptError, one_line

# name -> (module, function or Typer object in it, one line of help). Order of the help page.
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "init": ("autoopt.cli.init", "init", "Propose a dag.yaml for a model."),
    "plan": ("autoopt.cli.plan", "plan", "Show the chains of a DAG, and what was pruned and why."),
    "run": ("autoopt.cli.run", "run", "Search the DAG for a model and leave the best one in out/."),
    "resume": ("autoopt.cli.resume", "resume", "Continue a run that was interrupted."),
    "sweep": ("autoopt.cli.sweep", "sweep", "Run over a zoo of models."),
    "serve": ("autoopt.cli.serve", "serve", "Bring up the Prefect server, a worker and the deployments."),
    "passes": ("autoopt.cli.passes", "app", "List the passes, show one, write a new one."),
    "apply": ("autoopt.cli.apply", "apply", "Run one pass on a model."),
    "compare-models": ("autoopt.cli.compare_models", "compare_models", "Compare the outputs of two models."),
    "runs": ("autoopt.cli.runs", "runs", "List the runs."),
    "best": ("autoopt.cli.runs", "best", "Show the result of a run: best model and Pareto front."),
    "lineage": ("autoopt.cli.lineage", "lineage", "Show how a model came to be."),
    "replay": ("autoopt.cli.replay", "replay", "Make a model again from its recipe."),
    "report": ("autoopt.cli.report", "report", "Write a run as an HTML page."),
    "compare": ("autoopt.cli.compare", "compare", "Compare the best models of two runs."),
    "store": ("autoopt.cli.store", "app", "Verify, clean, measure, export and import the store."),
    "doctor": ("autoopt.cli.doctor", "doctor", "Check the installation and say what to do."),
}
EXIT_PIPE, EXIT_BUG = 141, 3
UsageError: Any = typer.BadParameter.__base__
"""The parser's own error, of which `BadParameter` is one; typer does not export it under a name of its own."""


def build(wanted: str | None) -> typer.Typer:
    """The application, with the implementation of `wanted` alone; the other commands are names with their help."""
    app = typer.Typer(
        name="autoopt",
        help="Find out by measuring which sequence of ONNX passes makes a model best on your hardware.",
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=False,
    )

    @app.callback()
    def options(
        version: bool = typer.Option(False, "--version", is_eager=True, callback=_version, help="Print the version."),
    ) -> None: ...

    for name, (module, attribute, text) in COMMANDS.items():
        if name == wanted:
            item = getattr(import_module(module), attribute)
            if isinstance(item, typer.Typer):
                app.add_typer(item, name=name, help=text)
            else:
                app.command(name)(item)
        elif find_spec(module) is not None:
            app.command(name, help=text)(_elsewhere)
    return app


def _elsewhere() -> None:
    raise AssertionError("a command that was not asked for is never called")


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(version("autoopt"))
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 1 fell short, 2 wrong input, 3 the system failed."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
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
        return _fail(str(error), error.exit_code)
    except UsageError as error:
        context = error.ctx
        where = context.command_path if context else "autoopt"
        return _fail(f"{where}: {error.format_message().rstrip('.')}; '{where} --help' shows what it takes", 2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", EXIT_BUG)
    except Exception as error:
        if os.environ.get("AUTOOPT_DEBUG"):
            raise
        text = f"autoopt: internal error: {type(error).__name__}: {error}"
        return _fail(f"{text}; please report it (AUTOOPT_DEBUG=1 shows the traceback)", EXIT_BUG)


def _call(arguments: list[str]) -> int:
    wanted = next((a for a in arguments if not a.startswith("-")), None)
    module = COMMANDS[wanted][0] if wanted in COMMANDS else ""
    app = build(wanted if module and find_spec(module) is not None else None)
    code = typer.main.get_command(app).main(args=arguments, prog_name="autoopt", standalone_mode=False)
    return code if isinstance(code, int) else 0


def _fail(text: str, code: int) -> int:
    with suppress(BrokenPipeError):
        sys.stderr.write(one_line(text) + "\n")
    return code


def _silence_stdout() -> None:
    """So that the interpreter's own flush at exit does not fail once more."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
