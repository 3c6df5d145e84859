"""Output of commands: one JSON document, text for people, log records on standard error."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer

USAGE_ERROR: Final[Any] = typer.BadParameter.__base__
"""The parser's base error, which typer does not export."""
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"
"""Records of worker processes carry the process id of their worker."""


def print_json(value: object, stream: TextIO | None = None) -> None:
    """Write records and values as one JSON document; numbers that JSON cannot express become null.

    Characters that the stream cannot encode are escaped.
    """
    from autoopt.json_codec import to_json

    stream = stream or sys.stdout
    document = json.loads(json.dumps(to_json(value)), parse_constant=lambda name: None)
    try:
        stream.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    except UnicodeEncodeError:
        stream.write(json.dumps(document, indent=2) + "\n")


def print_result(document: object, text: str, as_json: bool) -> None:
    """Write a document or the text that says the same."""
    if as_json:
        print_json(document)
    else:
        typer.echo(text)


def exit_code(success: bool) -> int:
    """0, or 1 for a result that falls short."""
    return int(not success)


def shell_commands() -> tuple[str, str]:
    """The commands with which this shell starts Python and autoopt.

    These are their names, or paths where autoopt was started by its path and PATH does not have it.
    """
    program = Path(sys.argv[0])
    found = shutil.which("autoopt")
    if program.name != "autoopt" or (found is not None and os.path.samefile(found, program)):
        return "python", "autoopt"
    return str(program.with_name("python")), str(program)


@contextmanager
def document_stream(as_json: bool) -> Iterator[TextIO]:
    """The stream for a command's result.

    With `--json`, it is the real standard output; all other output, even of native code, goes to standard error.
    """
    if not as_json:
        yield sys.stdout
        return
    sys.stdout.flush()
    real = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with os.fdopen(real, "w", encoding="utf-8") as stream:
        try:
            yield stream
        finally:
            sys.stdout.flush()
            stream.flush()
            os.dup2(real, sys.stdout.fileno())


def example_text(*lines: str) -> str:
    """The end of a help page with these command lines as examples."""
    # The parser joins the lines of a paragraph unless it begins with this character.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def show_logs(debug: bool) -> None:
    """Show the logger's records from level INFO on, or from DEBUG on."""
    import logging  # only now: it would slow down `autoopt --help`

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("autoopt")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    if debug:
        logger.setLevel(logging.DEBUG)


def is_verbose() -> bool:
    """True if `--verbose` or `--debug` was given."""
    import logging

    return logging.getLogger("autoopt").isEnabledFor(logging.INFO)
