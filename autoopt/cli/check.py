"""`autoopt check`: a sweep for continuous integration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.data_options import DataRoot
from autoopt.cli.interrupts import ended_by_signals
from autoopt.cli.output import AsJson, document_stream, exit_code, print_json
from autoopt.cli.run import Quiet, Workers
from autoopt.errors import writing


def check(  # noqa: PLR0913, PLR0917  options of the command
    zoo: Annotated[Path, typer.Argument(metavar="ZOO", help="A zoo.yaml or JSON file.")],
    only: Annotated[str | None, typer.Option(metavar="TAG", help="Check only the models with this tag.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit XML file.")] = None,
    summary: Annotated[
        Path | None,
        typer.Option(help="Append a Markdown summary to this file [default: GITHUB_STEP_SUMMARY, if it is set]."),
    ] = None,
    data_root: DataRoot = None,
    workers: Workers = 2,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Measure a zoo beside its last good sweep, for continuous integration.

    Sources and current best models are measured again. In GitHub Actions, regressions are annotated at the zoo file.

    Exit code 1 on a regression.
    """
    from autoopt.engine.sweeps.request import SweepRequest
    from autoopt.engine.sweeps.sweep import run_sweep
    from autoopt.engine.sweeps.zoo import check_zoo
    from autoopt.report.ci import github_annotations, junit_xml
    from autoopt.report.progress import Progress
    from autoopt.report.sweep import sweep_markdown, write_sweep

    check_zoo(zoo, only, None, data_root)
    with document_stream(as_json) as stream:
        with Progress(sys.stderr, quiet=quiet) as progress:
            request = SweepRequest(
                zoo=zoo, only=only, nightly=True, data_root=data_root, workers=workers, observer=progress
            )
            with ended_by_signals():
                result = run_sweep(request)
        if as_json:
            print_json(result.to_json(), stream)
    if not as_json:
        write_sweep(result, sys.stdout)
    if junit is not None:
        _write(junit, junit_xml(result), "w")
    if summary is None and os.environ.get("GITHUB_STEP_SUMMARY"):
        summary = Path(os.environ["GITHUB_STEP_SUMMARY"])
    if summary is not None:
        _write(summary, sweep_markdown(result) + "\n", "a")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github_annotations(result, str(zoo)):
            typer.echo(line, err=as_json)
    return exit_code(not result.failed)


def _write(path: Path, text: str, mode: str) -> None:
    with writing(path), path.open(mode, encoding="utf-8") as file:
        file.write(text)
