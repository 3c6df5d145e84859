"""`autoopt run` and `autoopt resume`: search a DAG for one model, and continue what was interrupted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autoopt.cli.output import AsJson, document_stream, parse_assignments, print_json
from autoopt.cli.proposal_options import (
    Device,
    Fidelity,
    Level,
    Memory,
    Precision,
    Provider,
    make_proposal_options,
)

if TYPE_CHECKING:
    from autoopt.results import RunResult

Engine = Literal["prefect", "inline"]
EngineName = Annotated[
    Engine,
    typer.Option("--engine", help="How to run trials: 'inline' (in this process) or 'prefect' (as flow runs)."),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the best model and its recipe.")]
Workers = Annotated[int, typer.Option(min=1, help="Number of passes and metrics to run in parallel.")]
DataRoot = Annotated[
    str | None,
    typer.Option(help="Folder or URL that relative data paths start from [default: AUTOOPT_DATA_ROOT]."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on standard error.")]


def run(  # noqa: PLR0913, PLR0917  options of the command
    dag: Annotated[str, typer.Argument(metavar="DAG", help="A dag.yaml or JSON file, or a bare model.onnx.")],
    model: Annotated[str | None, typer.Option(help="The source model; overrides the DAG's.")] = None,
    data: Annotated[str | None, typer.Option(help="Evaluation data; overrides the DAG's.")] = None,
    calibration: Annotated[
        str | None,
        typer.Option(help="Calibration data; overrides the DAG's [default: the evaluation data]."),
    ] = None,
    data_root: DataRoot = None,
    out: Out = Path("out"),
    engine: EngineName = "prefect",
    trials: Annotated[int | None, typer.Option(min=1, help="Maximum number of trials.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.001, help="Maximum time of the run, in minutes.")] = None,
    strategy: Annotated[str | None, typer.Option(help="Search strategy: unified or per-chain.")] = None,
    sampler: Annotated[
        str | None, typer.Option(help="Sampler: surrogate, tpe, random, exhaustive, or any sampler of Optuna.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all random choices.")] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A field of the DAG's search section, such as order=pass-by-pass."),
    ] = None,
    workers: Workers = 2,
    level: Level = None,
    precision: Precision = None,
    device: Device = None,
    ep: Provider = None,
    memory: Memory = None,
    fidelity: Fidelity = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Retry trials that failed in earlier runs.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start a new search even if an identical run exists.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Search a DAG for the best model and write it to out/.

    For a bare model, the DAG is the one that autoopt proposes.

    Exit code 1 if no model meets the constraints.
    """
    from autoopt.api import execute
    from autoopt.engine.inputs.request import RunRequest
    from autoopt.report.progress import Progress

    fields = parse_assignments(search, "--search")
    options = {"trials": trials, "minutes": minutes, "strategy": strategy, "sampler": sampler, "seed": seed}
    fields.update({name: value for name, value in options.items() if value is not None})
    proposal_options = make_proposal_options(level, precision, device, ep, memory, fidelity)
    with document_stream(as_json) as stream:
        with Progress(sys.stderr, quiet=quiet) as progress:
            request = RunRequest(
                dag=dag,
                model=model,
                data=data,
                calibration=calibration,
                data_root=data_root,
                workers=workers,
                search=fields,
                retry_failed=retry_failed,
                fresh=fresh,
                proposal_options=proposal_options,
                observer=progress,
            )
            result = execute(request, out=out, engine=engine)
        if as_json:
            print_json(result.to_json(), stream)
        else:
            _show_result(result, out)
    return exit_code(bool(result.best))


def resume(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Id of a run [default: all interrupted runs].")
    ] = None,
    data_root: DataRoot = None,
    out: Out = Path("out"),
    engine: EngineName = "prefect",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Resume interrupted runs. Work that was finished is not repeated.

    Exit code 1 if no model meets the constraints.
    """
    from autoopt.api import resume as resume_runs
    from autoopt.cli.store_access import require_store
    from autoopt.report.progress import Progress

    require_store()
    with document_stream(as_json) as stream:
        with Progress(sys.stderr, quiet=quiet) as progress:
            results = resume_runs(run, out=out, engine=engine, observer=progress, data_root=data_root)
        if as_json:
            print_json([result.to_json() for result in results], stream)
        elif not results:
            typer.echo(f"no run was interrupted{_cancelled_run()}")
        else:
            for result in results:
                _show_result(result, out)
    return exit_code(all(result.best for result in results))


def exit_code(success: bool) -> int:
    """0, or 1 for a result that falls short."""
    return int(not success)


def _show_result(result: RunResult, out: Path) -> None:
    """Write the result as tables, and the files that hold it."""
    from autoopt.cli.logs import is_verbose
    from autoopt.report.run import write_run

    write_run(result, sys.stdout, verbose=is_verbose())
    if result.best:
        names = (Path(result.best.path).name, "session.json", "recipe.json")
        typer.echo(f"wrote {', '.join(str(out / name) for name in names)}")
    for target in result.targets:
        if target.result.best:
            typer.echo(f"wrote {out / 'targets' / target.name}: the best for {target.name}")


def _cancelled_run() -> str:
    """Point to the newest cancelled run, which resumes only by its id."""
    from autoopt.settings import settings
    from autoopt.store import open_store

    with open_store(settings().db_url, settings().home) as store:
        for record in store.runs.all(status="cancelled"):
            if record.parent is None:
                return f"; run {record.id} was cancelled, resume it with 'autoopt resume {record.id}'"
    return ""
