"""`autoopt sweep` and `autoopt check`: a zoo of models, once, every night, or in continuous integration."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.data_options import DATA, DataRoot
from autoopt.cli.output import AsJson, document_stream, exit_code, print_json
from autoopt.cli.run import Engine, EngineName, Minutes, Quiet, Trials, Workers, chosen_engine
from autoopt.cli.store_access import require_store
from autoopt.errors import InputError, writing
from autoopt.json_codec import without_nulls

if TYPE_CHECKING:
    from autoopt.results import SweepResult
    from autoopt.zoo.sweep_request import SweepRequest


def sweep(  # noqa: PLR0913, PLR0917  options of the command
    zoo: Annotated[Path, typer.Argument(metavar="ZOO", help="A zoo.yaml or JSON file.")],
    dag: Annotated[
        str | None, typer.Option(metavar="DAG", help="Override the zoo's default DAG (per-model DAGs still apply).")
    ] = None,
    only: Annotated[str | None, typer.Option(metavar="TAG", help="Run only the models with this tag.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the last sweep, which was interrupted.")] = False,
    nightly: Annotated[
        bool, typer.Option("--nightly", help="Re-measure each source and its current best model.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept this sweep as the new baseline, regressions included.")
    ] = False,
    data_root: DataRoot = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the best models and the report.")] = Path("out"),
    engine: EngineName = None,
    trials: Trials = None,
    minutes: Minutes = None,
    workers: Workers = 2,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Run over a zoo of models and compare with the last good sweep. Unchanged models are not run again.

    Writes the best models, sweep.json, sweep.html and a report of each run to out/.

    Exit code 1 on a regression.
    """
    from autoopt.zoo.zoo_models import check_zoo

    check_zoo(zoo, only, dag, data_root)  # before anything is started for it
    from autoopt.cli.logs import is_verbose
    from autoopt.report.progress.progress import Progress
    from autoopt.zoo.sweep_request import SweepRequest

    request = SweepRequest(
        zoo=zoo,
        dag=dag,
        only=only,
        resume=resume,
        nightly=nightly,
        accept=accept,
        out=out,
        workers=workers,
        search=without_nulls({"trials": trials, "minutes": minutes}),
        data_root=data_root,
    )
    with document_stream(as_json) as stream:
        with Progress(sys.stderr, quiet=quiet, live=not is_verbose()) as progress:
            progress.opening(f"reading {zoo}")
            result = _run(replace(request, observer=progress), chosen_engine(engine))
        if as_json:
            print_json(result.to_json(), stream)
        else:
            from autoopt.zoo.sweep_text import write_sweep

            write_sweep(result, stream)
            typer.echo(f"wrote {out / 'sweep.html'}, {out / 'sweep.json'}")
    return exit_code(not result.failed)


def _run(request: SweepRequest, engine: Engine) -> SweepResult:
    if engine == "inline":
        from autoopt.zoo.sweep import run_sweep

        return run_sweep(request)
    from autoopt.orchestrate.connection import connect
    from autoopt.settings import settings

    connect(settings().home)
    from flows.nightly_sweep import sweep_as_flow

    return sweep_as_flow(request)


def check(  # noqa: PLR0913, PLR0917  options of the command
    zoo: Annotated[
        Path, typer.Argument(metavar="ZOO|MODEL", help="A zoo.yaml or JSON file, or with --baseline a model.")
    ],
    baseline: Annotated[
        str | None,
        typer.Option(metavar="PACKAGE|RUN", help="Compare a model with this package or run instead of a sweep."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Data for a package whose run had them elsewhere.", rich_help_panel=DATA),
    ] = None,
    only: Annotated[str | None, typer.Option(metavar="TAG", help="Check only the models with this tag.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit XML file.")] = None,
    summary: Annotated[
        Path | None,
        typer.Option(help="Append a Markdown summary to this file [default: GITHUB_STEP_SUMMARY, if it is set]."),
    ] = None,
    data_root: DataRoot = None,
    minutes: Minutes = None,
    workers: Workers = 2,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Measure a zoo and compare it with its last good sweep, or a model with a package or run.

    The source and the last good model of each are measured in turns; nothing is searched. In GitHub Actions,
    regressions are annotated at the zoo file.

    Exit code 1 on a regression.
    """
    from autoopt.zoo.ci import check_junit, github_annotations, junit_xml
    from autoopt.zoo.sweep_request import SweepRequest
    from autoopt.zoo.sweep_text import sweep_markdown, write_sweep

    if junit is not None:
        check_junit(junit)
    request = SweepRequest(
        zoo=zoo,
        only=only,
        nightly=True,
        check=True,
        search=without_nulls({"minutes": minutes}),
        data_root=data_root,
        workers=workers,
    )
    with document_stream(as_json) as stream:
        result = _checked(zoo, baseline, request, data, quiet=quiet)
        if as_json:
            print_json(result.to_json(), stream)
        else:
            write_sweep(result, stream)
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


def _checked(zoo: Path, baseline: str | None, request: SweepRequest, data: str | None, *, quiet: bool) -> SweepResult:
    """Check a zoo, or with a baseline a model.

    Raises:
        InputError: a model without a baseline, or what is named does not exist.
    """
    from autoopt.report.progress.progress import Progress
    from autoopt.spec.proposal_options import names_model
    from autoopt.zoo.baseline import check_baseline
    from autoopt.zoo.sweep import run_sweep
    from autoopt.zoo.zoo_models import check_zoo

    if data is not None and not (baseline is not None and Path(baseline).is_dir()):
        raise InputError("is for a package; a run and a zoo name their data", where="--data")
    if baseline is not None and request.only is not None:
        raise InputError("chooses models of a zoo, and --baseline has none", where="--only")
    if baseline is not None:
        if not Path(baseline).is_dir():
            require_store()
    elif names_model(zoo):
        raise InputError("is a model", where=str(zoo), remedy="name what was good: --baseline PACKAGE|RUN")
    else:
        check_zoo(zoo, request.only, None, None if request.data_root is None else str(request.data_root))
    with Progress(sys.stderr, quiet=quiet) as progress:
        request = replace(request, observer=progress)
        return run_sweep(request) if baseline is None else check_baseline(zoo, baseline, request, data)


def _write(path: Path, text: str, mode: str) -> None:
    with writing(path), path.open(mode, encoding="utf-8") as file:
        file.write(text)
