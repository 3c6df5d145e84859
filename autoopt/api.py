"""The Python API of a run: `run` and `resume`, with the vocabulary of the command line; results are typed records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack

from autoopt.data.reading import Data, Model, Preprocess, Reading, Serializable, data_file, model_file
from autoopt.engine.parts.run_of_parts import is_outdated
from autoopt.engine.prepare import prepare
from autoopt.engine.run.output_folder import check_out
from autoopt.engine.run.session import Session, search_inline
from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonValue
from autoopt.observer import SILENT, CallbackObserver, Observer
from autoopt.problem.admission import ARTIFACT
from autoopt.problem.goal import GoalOptions
from autoopt.problem.problem import Limits
from autoopt.problem.run_request import Again, RunRequest
from autoopt.report.progress import Progress, in_notebook
from autoopt.results import RunResult
from autoopt.settings import settings
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import ProposalOptions, names_model
from autoopt.store import RunRecord, Store, open_store
from autoopt.store.leases import end_run
from autoopt.workers.gate import notices_to

if TYPE_CHECKING:
    from autoopt.stored_runs import Run

Engine = Literal["prefect", "inline"]
Config: TypeAlias = str | Path | Mapping[str, object]
"""A file, or its content."""


class RunOptions(TypedDict, total=False):
    """Further options of `run`: those of the search, and the fields of `Reading` and `RunRequest`, explained there."""

    trials: int
    """Maximum number of trials."""
    minutes: float
    """Maximum time of the run."""
    minimize: Literal["latency", "size", "memory"]
    metric: str
    """The quality metric that is limited."""
    max_drop: float
    """The drop in it that is accepted."""
    goal: GoalOptions
    """The last three as one."""
    search: Mapping[str, object]
    """Further fields of the DAG's `search` section."""
    calibration: Data
    label: str
    inputs: Sequence[str] | Mapping[str, str]
    ignore: Sequence[str]
    classes: Sequence[str]
    tokenizer: str
    length: int
    image_size: Sequence[int]
    preprocess: Preprocess
    grayscale: bool
    scale: float
    mean: Sequence[float]
    std: Sequence[float]
    layout: Literal["NCHW", "NHWC"]
    sample_rate: int
    parts: Mapping[str, str]
    """Several models that belong together, by name; `dag` is then one of them."""
    data_root: str | Path
    home: Path
    db_url: str
    workers: int
    limits: Limits
    measurement: Mapping[str, JsonValue]
    again: Again
    proposal_options: ProposalOptions
    target: str
    observer: Observer


SEARCH_OPTIONS = ("trials", "minutes")
GOAL_OPTIONS = ("minimize", "metric", "max_drop")
READING_OPTIONS = tuple(field.name for field in dataclass_fields(Reading))


def run(
    dag: Config | DagSpec | Serializable,
    *,
    model: Model | None = None,
    data: Data | None = None,
    out: str | Path | None = "out",
    engine: Engine = "inline",
    listener: Callable[..., None] | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Find the best model: plan, search, measure, record; write it to `out` with its recipe.

    Args:
        dag: path of a dag.yaml or JSON file, a mapping, or a `DagSpec`; or a model, for which a DAG is proposed.
        model: path or URL of the source model, or an `onnx.ModelProto`; overrides the DAG's.
        data: evaluation data (path, data configuration, arrays by name, or a data frame); overrides the DAG's.
        out: folder for the package of the best model (`model.onnx`, `session.json`, `run.py`, `recipe.json`, ...); if
            there are several targets, of the best of all, with the best for each in `targets/<name>/`. None
            writes nothing.
        engine: `inline` runs trials in threads, `prefect` as flow runs.
        listener: plain function that receives events as `listener(event, **values)`; an `observer` has typed hooks.
        options: see `RunOptions`. In a notebook, the default observer shows the progress.

    Returns:
        The result; its `best` is the source model if no model meets the constraints.

    Raises:
        InputError: what the user gave is wrong.
        SystemFailure: the machine, the database or Prefect failed.
        TypeError: an option that does not exist.
    """
    from autoopt.stored_runs import Run  # with tables and charts, which the command does not need

    _check_names(options)
    home, db_url = options.get("home"), options.get("db_url")
    folder = home or settings().home
    fields = _request_fields(options)
    source = None if model is None else model_file(model, folder)
    graph = model_file(dag, folder) if isinstance(dag, Serializable) else dag
    given: dict[str, Any] = {name: value for name, value in options.items() if name in READING_OPTIONS}
    if data is None and given.get("image_size") is not None and names_model(graph):
        # The size of generated images.
        fields["measurement"] = {**options.get("measurement", {}), "image_size": list(given.pop("image_size"))}
    calibration = _data_of(fields.pop("calibration", None), folder)
    evaluation, other = Reading(**given).configs(_data_of(data, folder), calibration, source or graph)
    if listener is not None:
        fields["observer"] = CallbackObserver(listener)
    with ExitStack() as stack:
        if "observer" not in fields and in_notebook():
            fields["observer"] = stack.enter_context(Progress(sys.stdout))
        to = None if out is None else Path(out)
        request = RunRequest(graph, model=source, data=evaluation, calibration=other, out=to)
        result = execute(replace(request, **fields), engine)
        return Run.of(result, home, db_url, request.out)


def _data_of(data: Data | None, folder: Path) -> object:
    """The data as a request takes them; arrays in memory are written to a file in `folder`."""
    return None if data is None else data_file(data, folder)


def _request_fields(options: RunOptions) -> dict[str, Any]:
    """The options other than those about data as fields of a `RunRequest`."""
    fields: dict[str, Any] = {name: value for name, value in options.items() if name not in READING_OPTIONS}
    search = {name: fields.pop(name) for name in SEARCH_OPTIONS if name in options}
    if search:
        fields["search"] = {**options.get("search", {}), **search}
    goal = {name: fields.pop(name) for name in GOAL_OPTIONS if name in options}
    if goal:
        fields["goal"] = replace(options.get("goal", GoalOptions()), **goal)
    return fields


def _check_names(options: Mapping[str, object]) -> None:
    """Refuse options that `run` does not have."""
    names = RunOptions.__annotations__
    for name in options:
        if name not in names:
            hint = did_you_mean(name, names) or f"it takes {', '.join(sorted(names))}"
            raise TypeError(f"run() has no option {name!r}; {hint}")


def resume(  # noqa: PLR0913  the options of `autoopt resume`
    run: str | None = None,
    *,
    out: str | Path | None = None,
    engine: Engine = "inline",
    observer: Observer = SILENT,
    listener: Callable[..., None] | None = None,
    home: Path | None = None,
    data_root: str | Path | None = None,
) -> list[Run]:
    """Continue one run, or all interrupted runs that no process is executing.

    Finished work is not repeated, and the budget of minutes continues from where it was. If all interrupted runs are
    continued, one that cannot be is marked as failed. A finished run over several targets is joined again if chains of
    a target have been retried since.

    Args:
        run: a run's id, the beginning of one, or `latest`; None for all interrupted runs. A part of a run over several
            targets or models stands for the whole.
        out: folder for the package of the best model, with one folder per run below it if all interrupted runs are
            continued. By default each run writes where it was to write when it began, if anywhere.
        engine: as for `run`.
        observer: receives progress.
        listener: as for `run`.
        home: folder of the store; AUTOOPT_HOME by default.
        data_root: folder or URL that relative data paths start from.

    Raises:
        InputError: there is no such run, it has finished, or its inputs have changed.
    """
    from autoopt.stored_runs import Run

    if listener is not None:
        observer = CallbackObserver(listener)
    with open_store(home=home) as store:
        records = _resumable(store, run)
        results = []
        for record in records:
            request = replace(_request_of(record), resume=record.id, observer=observer, home=home)
            if data_root is not None:
                request = replace(request, data_root=data_root)
            if out is not None:
                request = replace(request, out=Path(out) if run else Path(out) / record.id)
            try:
                results.append(Run.of(execute(request, engine), home, out=request.out))
            except InputError as error:
                if run:
                    raise
                # The other runs can still be resumed.
                end_run(store, record.id, "failed", str(error))
                observer.on_note(str(error))
    return results


def _resumable(store: Store, run: str | None) -> list[RunRecord]:
    if run is None:
        running = store.runs.all(status="running")
        interrupted = [record for record in running if record.parent is None]
        return [record for record in interrupted if store.claims.acquire("run", record.id)]
    record = store.runs.get(run)
    if record.parent is not None:
        record = store.runs.get(record.parent)
    if record.status == "finished" and not is_outdated(record, store):
        raise InputError(f"run {record.id} has finished", remedy=f"'autoopt runs {record.id}' shows its result")
    return [record]


def _request_of(record: RunRecord) -> RunRequest:
    """The request of a stored run, with the DAG as its file is now."""
    request = RunRequest.from_json(record.settings["request"], reread=True)
    if "://" in str(request.model):
        # What the URL holds may have changed since, so the model of the run is the one in the store.
        return replace(request, model=f"{ARTIFACT}{record.model}")
    return request


def execute(request: RunRequest, engine: Engine = "inline") -> RunResult:
    """Execute a request; see `run` for the engine and the errors.

    A run with Prefect is submitted to `autoopt serve` where that can execute it.
    """
    out = request.out
    if out is not None:
        check_out(out)
    if engine == "prefect":
        from autoopt.orchestrate.connection import connect
        from autoopt.orchestrate.submitted import run_in_pool, submit

        connect(request.home or settings().home)
        request = replace(request, in_pool=run_in_pool)
        submitted = submit(request)
        if submitted is not None:
            return submitted
    with notices_to(request.observer.on_note), prepare(request) as session:
        try:
            result = session.execute(lambda one: _search(one, engine))
        except KeyboardInterrupt:
            if out is not None:
                session.export_incumbent(out)
            raise
        if out is not None:
            result = session.export(result, out)
        return result


def _search(session: Session, engine: Engine) -> RunResult:
    if engine == "inline":
        return search_inline(session)
    from flows.optimize_model import search_as_flow

    return search_as_flow(session)
