"""`autoopt run`: search a DAG for one model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from autoopt.cli.output import AsJson, print_json, stdout_kept
from autoopt.cli.proposal_options import Device, Fidelity, Level, Memory, Precision, Provider, make_wish
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.engine.inputs.request import RunRequest
    from autoopt.results import RunResult

Engine = Literal["prefect", "inline"]
EngineName = Annotated[Engine, typer.Option("--engine", help="Carry trials out as Prefect flow runs, or in threads.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the best model and its recipe.")]
Searching = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Any field of the DAG's search section, such as order=pass-by-pass."),
]
Workers = Annotated[int, typer.Option(min=1, help="How many passes and task metrics go on at once.")]
DataRoot = Annotated[
    str | None, typer.Option(help="Folder or URL that relative data paths start from; default AUTOOPT_DATA_ROOT.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Do again what failed in earlier runs.")]


def run(
    dag: Annotated[str, typer.Argument(metavar="DAG", help="A dag.yaml or JSON file, or a bare model.onnx.")],
    model: Annotated[str | None, typer.Option(help="The source model; overrides the DAG's.")] = None,
    data: Annotated[str | None, typer.Option(help="Evaluation data; overrides the DAG's.")] = None,
    calibration: Annotated[
        str | None, typer.Option(help="Calibration data; overrides the DAG's. Without any it is the evaluation data.")
    ] = None,
    data_root: DataRoot = None,
    out: Out = Path("out"),
    engine: EngineName = "prefect",
    trials: Annotated[int | None, typer.Option(min=1, help="At most so many trials.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.001, help="At most so many minutes.")] = None,
    strategy: Annotated[str | None, typer.Option(help="unified or per-chain.")] = None,
    sampler: Annotated[str | None, typer.Option(help="surrogate, tpe, random, exhaustive, or one of Optuna's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")] = None,
    search: Searching = None,
    workers: Workers = 2,
    level: Level = None,
    precision: Precision = None,
    device: Device = None,
    ep: Provider = None,
    memory: Memory = None,
    fidelity: Fidelity = False,
    retry_failed: RetryFailed = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Search again though an identical run has finished.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Search the DAG for a model and leave the best one in out/. For a bare model, search what autoopt proposes.

    Exit code 1 where no model meets the constraints.
    """
    from autoopt.engine.inputs.request import RunRequest

    asked = {"trials": trials, "minutes": minutes, "strategy": strategy, "sampler": sampler, "seed": seed}
    request = RunRequest(
        dag=dag,
        model=model,
        data=data,
        calibration=calibration,
        data_root=data_root,
        workers=workers,
        search={**read_search(search or ()), **{name: value for name, value in asked.items() if value is not None}},
        retry_failed=retry_failed,
        fresh=fresh,
        wish=make_wish(level, precision, device, ep, memory, fidelity),
    )
    return execute(request, out=out, engine=engine, quiet=quiet, as_json=as_json)


def read_search(given: Iterable[str]) -> dict[str, Any]:
    """Fields of a search section from `NAME=VALUE`; a value is JSON, or text where it is not.

    Raises:
        InputError: no `=` in one of them.
    """
    found: dict[str, Any] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"must be NAME=VALUE, not {item!r}", where="--search")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def execute(request: RunRequest, *, out: Path, engine: Engine, quiet: bool, as_json: bool) -> int:
    """Carry a request out with live progress, and render its result; returns the exit code."""
    from dataclasses import replace

    from autoopt import api
    from autoopt.report.progress import Progress

    with ExitStack() as stack:
        stream = stack.enter_context(stdout_kept()) if as_json else sys.stdout
        with Progress(sys.stderr, quiet=quiet) as progress:
            result = api.execute(replace(request, observer=progress), out=out, engine=engine)
        if as_json:
            print_json(result.to_json(), stream)
        else:
            show_result(result, out)
    return 0 if result.best else 1


def show_result(result: RunResult, out: Path) -> None:
    """The result as tables, and what was written."""
    from autoopt.report.run import write_run

    write_run(result, sys.stdout)
    if result.best:
        files = ", ".join(str(out / name) for name in (Path(result.best.path).name, "session.json", "recipe.json"))
        typer.echo(f"wrote {files}")
    for target in result.targets:
        if target.result.best:
            typer.echo(f"wrote {out / 'targets' / target.name}: the best for {target.name}")
