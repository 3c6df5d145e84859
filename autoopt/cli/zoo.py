"""`autoopt sweep`, `check`, `nights`, `promote` and `serve`: a zoo of models once, every night, in CI, and in use."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoopt.cli.data_options import DATA, DataRoot
from autoopt.cli.output import AsJson, document_stream, exit_code, is_verbose, print_json, print_result
from autoopt.cli.run import Engine, EngineName, Minutes, Quiet, Trials, Workers, chosen_engine
from autoopt.cli.store_access import existing_store, require_store
from autoopt.errors import InputError, writing
from autoopt.json_codec import to_json, without_nulls
from autoopt.settings import settings

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
    from autoopt.report.progress import Progress
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
            from autoopt.zoo.sweep_report import write_sweep

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
    from autoopt.zoo.sweep_report import check_junit, github_annotations, junit_xml, sweep_markdown, write_sweep
    from autoopt.zoo.sweep_request import SweepRequest

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
    from autoopt.report.progress import Progress
    from autoopt.spec.proposal_options import names_model
    from autoopt.zoo.baseline import check_baseline
    from autoopt.zoo.sweep import run_sweep
    from autoopt.zoo.zoo_models import check_zoo

    is_package = baseline is not None and Path(baseline).is_dir()
    if data is not None and not is_package:
        raise InputError("is for a package; a run and a zoo name their data", where="--data")
    if baseline is None:
        if names_model(zoo):
            raise InputError("is a model", where=str(zoo), remedy="name what was good: --baseline PACKAGE|RUN")
        check_zoo(zoo, request.only, None, None if request.data_root is None else str(request.data_root))
        with Progress(sys.stderr, quiet=quiet) as progress:
            return run_sweep(replace(request, observer=progress))
    if request.only is not None:
        raise InputError("chooses models of a zoo, and --baseline has none", where="--only")
    if not is_package:
        require_store()
    with Progress(sys.stderr, quiet=quiet) as progress:
        return check_baseline(zoo, baseline, replace(request, observer=progress), data)


def _write(path: Path, text: str, mode: str) -> None:
    with writing(path), path.open(mode, encoding="utf-8") as file:
        file.write(text)


def nights(
    zoo: Annotated[
        str | None, typer.Argument(metavar="ZOO", help="Name of a zoo, or its zoo.yaml [default: the only one].")
    ] = None,
    worse: Annotated[
        bool, typer.Option("--worse", help="Only models that regressed, became worse for good, or are flaky.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of nights, the newest ones.")] = 60,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SWEEP SWEEP", help="Compare two nights by their sweeps' ids; or 'latest'."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the sweeps of a zoo over time: nights, models, lasting changes and flaky models.

    'autoopt report --zoo NAME' writes the same as a page with plots.
    """
    from autoopt.report.table import write_table
    from autoopt.zoo.nights import history_of, night_named, stored_nights, zoo_of
    from autoopt.zoo.nights_report import compare_nights, comparison_table, write_nights

    with existing_store() as store:
        name = zoo_of(store, zoo)
        stored = stored_nights(store, name, limit)
    if compare is not None:
        before, after = (night_named(stored, night) for night in compare)
        comparisons = compare_nights(before, after, worse=worse)
        if as_json:
            documents = {name: to_json(comparison) for name, comparison in comparisons.items()}
            models = {name: {"sweep": document.pop("with"), **document} for name, document in documents.items()}
            print_json({"before": before.sweep, "after": after.sweep, "models": models})
        else:
            write_table(comparison_table(comparisons, f"{before.sweep} -> {after.sweep}"), sys.stdout)
        return
    history = history_of(name, stored, worse=worse)
    if as_json:
        print_json(history)
    else:
        write_nights(history, sys.stdout)


def promote(  # noqa: PLR0913, PLR0917  options of the command
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL|RUN", help="A model of the newest sweep, also as ZOO/MODEL, or a run's id."),
    ] = None,
    trial: Annotated[
        int | None, typer.Argument(min=0, metavar="TRIAL", help="Number of a trial [default: the best model].")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="Publish there: a folder, a URL such as s3://bucket/cnn, or mlflow:NAME; may be repeated "
            "[default: the places of its last release].",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="ZOO/MODEL", help="For a run that no sweep made: what it is a release of.")
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="NAME", help="Release the best model for this target.")] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Go back to the previous release of the model, at the same places.")
    ] = False,
    every: Annotated[bool, typer.Option("--list", help="List current and past releases.")] = False,
    as_json: AsJson = False,
) -> None:
    """Release a model of a zoo. From then on, nights compare with it.

    A model that failed or became worse in the newest sweep is refused; promote it by the id of its run instead.
    """
    from autoopt.zoo.releases import Promotion, release_text, roll_back
    from autoopt.zoo.releases import promote as release_model

    if every:
        _list_releases(as_json)
        return
    if model is None:
        raise InputError("name a model", where="MODEL", remedy="'autoopt promote --list' shows what is released")
    with existing_store() as store:
        if undo:
            taken_back, release = roll_back(store, model)
            text = f"took back {taken_back.name}; released again {release_text(release)}"
            print_result({"taken_back": taken_back.number, **release.to_json()}, text, as_json)
            return
        release = release_model(store, Promotion(model, trial, target, name, tuple(to or ())))
    print_result(release.to_json(), f"released {release_text(release)}", as_json)


def _list_releases(as_json: bool) -> None:
    from autoopt.report.table import write_table
    from autoopt.zoo.releases import release_rows, releases_table

    with existing_store() as store:
        rows = release_rows(store)
    if as_json:
        print_json([{**row.release.to_json(), "current": row.current} for row in rows])
    elif rows:
        write_table(releases_table(rows), sys.stdout)
    else:
        typer.echo("nothing is released; 'autoopt promote MODEL' releases a model")


def serve(  # noqa: PLR0913, PLR0917  options of the command
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; other machines can reach any but a loopback address."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server.")] = 4200,
    models: Annotated[int, typer.Option(min=1, help="Maximum number of runs of models at once.")] = 2,
    chains: Annotated[
        int,
        typer.Option(
            min=0,
            help="Deploy chains too, at most this many at once: each gets a Cancel and a Retry of its own, and takes "
            "10 to 20 s to start. 0: chains are subflows of their model's run.",
        ),
    ] = 0,
    zoo: Annotated[Path | None, typer.Option(help="Also schedule a nightly sweep over this zoo.yaml.")] = None,
    cron: Annotated[str, typer.Option(metavar="CRON", help="With --zoo: cron expression of the sweep.")] = "0 2 * * *",
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin [default: this machine's]."),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Deploy to this work pool, whose workers execute the runs, instead of here."),
    ] = None,
    scripts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Run user scripts and interpreters only from this folder; may be repeated [default: none].",
        ),
    ] = None,
) -> None:
    """Start a Prefect server with autoopt's deployments and execute their runs; stop with Ctrl-C.

    If PREFECT_API_URL is set, no server is started and that one is used.
    """
    from autoopt.deployments import Night, Plan, deployments_of
    from autoopt.orchestrate.names import Place
    from autoopt.orchestrate.serve import execute, server
    from autoopt.script import SCRIPT_FOLDERS

    night = None if zoo is None else Night.of(zoo, cron, timezone)
    if pool is not None and not os.environ.get("PREFECT_API_URL"):
        raise InputError("needs a server of its own", where="--pool", remedy="set PREFECT_API_URL")
    home = settings().home
    home.mkdir(parents=True, exist_ok=True)
    os.environ["AUTOOPT_HOME"] = str(home)
    if scripts:
        os.environ[SCRIPT_FOLDERS] = os.pathsep.join(str(folder.resolve()) for folder in scripts)
    plan = Plan(Place.here() if pool is None else Place.in_pool(pool), models, chains, night)
    with server(home, host, port, typer.echo):
        deployments = deployments_of(plan)
        typer.echo(f"deployments: {', '.join(one.full_name for one in deployments)}")
        typer.echo(f"scripts: {os.environ.get(SCRIPT_FOLDERS) or 'none run; name their folder with --scripts DIR'}")
        typer.echo(f"store: {home}")
        if pool is not None:
            typer.echo(f"start a worker: prefect worker start --pool {pool} --limit {plan.limit}")
            return
        typer.echo("ready; stop with Ctrl-C")
        execute(deployments, plan.limit)
        typer.echo("stopped")
