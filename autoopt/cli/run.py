"""`autoopt run` and `autoopt resume`: search a DAG for one model, and continue what was interrupted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from autoopt.cli.data_options import Calibration, Data, DataOptions, DataRoot, request_of
from autoopt.cli.option_groups import Fields, GoalFlags, ProposalFlags, with_option_groups, with_set_fields
from autoopt.cli.output import AsJson, document_stream, exit_code, is_verbose, print_json, shell_commands
from autoopt.cli.store_access import complete_run, existing_store, require_store
from autoopt.json_codec import without_nulls

if TYPE_CHECKING:
    from autoopt.results import RunResult

Engine = Literal["inline", "prefect"]
EngineName = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="How to run trials: 'inline' (in this process) or 'prefect' (as flow runs) "
        "[default: inline, or prefect if PREFECT_API_URL is set].",
    ),
]
SEARCH: Final = "Search"
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for the package of the best model, updated during the run.")
]
Trials = Annotated[
    int | None,
    typer.Option(
        min=1, help="Maximum number of trials; repeats of a known model do not count.", rich_help_panel=SEARCH
    ),
]
Minutes = Annotated[
    float | None, typer.Option(min=0.001, help="Maximum time of a run, in minutes.", rich_help_panel=SEARCH)
]
MOST_WORKERS: Final = 256


def _check_workers(workers: int) -> int:
    if workers > MOST_WORKERS:
        raise typer.BadParameter(f"must be at most {MOST_WORKERS}, not {workers}")
    return workers


Workers = Annotated[
    int, typer.Option(min=1, callback=_check_workers, help="Number of passes and metrics to run in parallel.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on standard error.")]
DagOrModels = Annotated[
    list[str],
    typer.Argument(
        metavar="DAG",
        help="A dag.yaml or JSON file, a bare model.onnx, a folder of models, or several models that belong "
        "together: NAME=MODEL NAME=MODEL.",
    ),
]


AgainOption = Annotated[
    Literal["failed", "measurements", "all"] | None,
    typer.Option(
        help="Repeat what earlier runs did: trials that failed, measurements (of candidates that are not known well, "
        "else of all), or all, a new search that reuses finished work.",
        rich_help_panel=SEARCH,
    ),
]


@partial(with_option_groups, hidden=("data_root", "workers", "quiet", "as_json"))
def run(  # noqa: PLR0913  options of the command
    dag: DagOrModels,
    *,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="The source model; overrides the DAG's.")] = None,
    data: Data = None,
    calibration: Calibration = None,
    reading: DataOptions,
    goal: GoalFlags,
    data_root: DataRoot = None,
    out: Out = Path("out"),
    engine: EngineName = None,
    trials: Trials = None,
    minutes: Minutes = None,
    assignments: Fields = None,
    workers: Workers = 2,
    proposal: ProposalFlags,
    again: AgainOption = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Search a DAG for the best model and write it to out/.

    For a bare model, the DAG is the one that autoopt proposes. Options override what a DAG says. Also: --quiet shows no
    progress, --json prints one document, --workers N limits passes and metrics in parallel [2], --data-root PATH is
    where relative data paths start [AUTOOPT_DATA_ROOT], and 'autoopt data --help' lists more options for data.

    Exit code 1 if no model meets the constraints.
    """
    from autoopt.report.progress import Progress
    from autoopt.settings import without_passwords

    began = time.monotonic()
    proposal_options = proposal.options()
    with document_stream(as_json) as stream:
        with Progress(sys.stderr, quiet=quiet, live=not is_verbose()) as progress:
            progress.opening(f"reading {without_passwords(model or ' '.join(dag))}")
            # Imported only now, because it takes longer than the first line may.
            from autoopt.api import execute

            request = replace(
                request_of(dag, reading, data, calibration, model),
                goal=goal.options(),
                data_root=data_root,
                workers=workers,
                search=without_nulls({"trials": trials, "minutes": minutes}),
                proposal_options=proposal_options,
                observer=progress,
                out=out,
                began=began,
                # What slowed down the imports slows down the end.
                ending=time.monotonic() - began,
                again=again,
            )
            result = execute(with_set_fields(request, assignments), chosen_engine(engine))
        if as_json:
            print_json(result.to_json(), stream)
        else:
            _show_result(result, out, shown_notes=progress.notes)
    return exit_code(bool(result.best))


def resume(  # noqa: PLR0913, PLR0917  options of the command
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Id of a run [default: the newest one that was interrupted].",
            autocompletion=complete_run,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Resume all interrupted runs, but not cancelled ones.")] = False,
    data_root: DataRoot = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the package; with --all, one below it for each run [default: the run's]."
        ),
    ] = None,
    engine: EngineName = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Resume an interrupted or cancelled run. Work that was finished is not repeated.

    Exit code 1 if no model meets the constraints.
    """
    from autoopt.report.progress import Progress

    require_store()
    run, *others = [run or ""] if run is not None or every else _begun_runs()
    with document_stream(as_json) as stream:
        with Progress(sys.stderr, quiet=quiet, live=not is_verbose()) as progress:
            progress.opening(f"resuming {run or 'interrupted runs'}")
            if others:
                progress.on_note(f"other interrupted runs: {', '.join(others)}")
            # Imported only now, because it takes longer than the first line may.
            from autoopt.api import resume as resume_runs
            from autoopt.engine.run.output_folder import shown_folder

            chosen = chosen_engine(engine)
            results = []
            if run or every:
                results = resume_runs(run or None, out=out, engine=chosen, observer=progress, data_root=data_root)
        if as_json:
            print_json([one.result.to_json() for one in results], stream)
        elif not results:
            typer.echo("no run was interrupted or cancelled")
        else:
            for one in results:
                out = None if one.out is None else shown_folder(one.out)
                _show_result(one.result, out, shown_notes=progress.notes)
    return exit_code(all(one.result.best for one in results))


def _begun_runs() -> list[str]:
    """The interrupted runs, the newest first; an empty id without any."""
    from autoopt.store.leases import begun_runs

    with existing_store() as store:
        return begun_runs(store) or [""]


def chosen_engine(requested: Engine | None) -> Engine:
    """The requested engine; without one, Prefect only where its server is configured."""
    if requested is None:
        return "prefect" if os.environ.get("PREFECT_API_URL") else "inline"
    return requested


def _show_result(result: RunResult, out: Path | None, shown_notes: Sequence[str] = ()) -> None:
    """Write the result as tables, the files in `out` that hold it, and the answer with what to do next.

    Notes in `shown_notes` are left out: the progress has shown them.
    """
    from autoopt.report.run_text import write_conclusion, write_run
    from autoopt.report.words.markup import shell_word
    from autoopt.report.words.verdict import lossy_steps

    files = [] if out is None else _written_files(result, out)
    python, autoopt = shell_commands()
    for target in result.targets:
        if result.choice is not None and target.name == result.choice.name and target.target.get("python"):
            python = shell_word(target.target["python"])
    steps = [*lossy_steps(result), f"Why: {autoopt} report"]
    if out is not None and result.better_model is not None:
        steps.insert(0, f"Try it: {python} {shell_word(out / 'run.py')}")
    if is_verbose():
        next_step = ". ".join(steps)
        write_run(result, sys.stdout, verbose=True, files=files, next_step=next_step, shown_notes=shown_notes)
    else:
        write_conclusion(result, sys.stdout, files=files, next_steps=steps, shown_notes=shown_notes)


def _written_files(result: RunResult, out: Path) -> list[str]:
    """A line for each folder that the run wrote."""
    lines = []
    if result.best is not None:
        model = "your model" if result.best.is_source else "the model"
        content = f"{model}, its session, recipe, model card and run.py"
        if result.parts:
            content = f"{', '.join(part.name for part in result.parts)}, model_set.json, run.py"
        lines.append(f"wrote {out}/: {content}")
    names = [target.name for target in result.targets if target.result.best is not None]
    lines += [f"wrote {out / 'targets' / name}/: the best for {name}" for name in names]
    return lines
