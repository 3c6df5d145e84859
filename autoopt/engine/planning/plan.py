"""Plan without a run, as `autoopt plan` and `autoopt.plan` do. Imports no native library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoopt.dag import Facts, Plan, Proposal, compile_plan, pass_infos, script_infos
from autoopt.engine.planning.spec_checks import check_supported
from autoopt.engine.work.environment import cpu, library_version
from autoopt.engine.work.reading import value_of
from autoopt.errors import InputError
from autoopt.model.files import is_convertible
from autoopt.model.inspection import Inspection
from autoopt.model.mlflow import is_packaged
from autoopt.settings import root_of_data, settings
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.proposal_options import ProposalOptions, names_model, refuse_proposal_options
from autoopt.target import DEFAULT_EP

if TYPE_CHECKING:
    from autoopt.workers import WorkerPool

SECONDS = 60.0
"""Time limit of a question to a worker."""
BLOCK_BYTES = 1 << 20


def make_plan(
    dag: str | Path | Mapping[str, Any] | DagSpec,
    model: str | Path | None = None,
    data: object = None,
    *,
    calibration: object = None,
    proposal_options: ProposalOptions | None = None,
    data_root: str | Path | None = None,
) -> Plan:
    """Plan a DAG for its first target, or a proposed DAG for a model.

    A worker inspects models, runtimes and user scripts. If there is a store, inspections of models are cached beside
    it.

    Args:
        dag: A dag.yaml, its content, or the path of a bare model, for which a DAG is proposed.
        model: The model to plan for; None to plan without the facts of a model.
        data: Evaluation data.
        calibration: Calibration data.
        proposal_options: Options of the proposal for a bare model.
        data_root: Folder that relative paths of data start from.

    Raises:
        InputError: Anything that the user gave is wrong; one line.
    """
    for source in (data, calibration):
        if isinstance(source, str | Path) and "://" not in str(source) and not Path(source).exists():
            raise InputError("no such data", where=str(source))
    if names_model(dag):
        return make_proposal(str(dag), data, calibration, proposal_options)[1]
    refuse_proposal_options(proposal_options)
    spec = load_dag(dag).with_data_root(root_of_data(data_root))
    spec.check_files(model=model is None, data=data is None)
    check_supported(spec)
    target = spec.all_targets[0]
    accelerator = target.accelerator(frozenset(cpu()["flags"]))
    with _Probe() as probe:
        script = None
        if spec.script_path is not None:
            script = str(_fetched(spec.script_path))
        infos = pass_infos(accelerator, script_infos(script, accelerator, probe.describe_script))
        inspection, providers = None, None
        if model is not None:
            inspection = probe.inspect(Path(_fetched(model)))
            if target.where.type == "local":
                providers = probe.execution_providers(accelerator.execution_provider)
    sources = (data, calibration, spec.data.calibration, spec.data.evaluation)
    has_calibration = any(source is not None for source in sources)
    return compile_plan(spec, infos, Facts(accelerator, inspection, providers, has_calibration=has_calibration))


def make_plans(
    dag: str | Path | Mapping[str, Any] | DagSpec,
    model: str | Path | None = None,
    data: object = None,
    *,
    proposal_options: ProposalOptions | None = None,
    data_root: str | Path | None = None,
) -> dict[str, Plan]:
    """Plan a DAG for each of its targets; arguments and errors as for `make_plan`.

    Returns:
        The plans by the target's name and description, such as `one: CPUExecutionProvider, 1 thread`; by an empty
        name if there is only one target.
    """
    if names_model(dag):
        return {"": make_plan(dag, model, data, proposal_options=proposal_options)}
    refuse_proposal_options(proposal_options)
    spec = load_dag(dag)
    if len(spec.all_targets) == 1:
        return {"": make_plan(spec, model, data, data_root=data_root)}
    plans: dict[str, Plan] = {}
    for target in spec.all_targets:
        plan = make_plan(spec.for_target(target.name), model, data, data_root=data_root)
        plans[f"{target.name}: {target.words}"] = plan
    return plans


def plans_json(plans: Mapping[str, Plan], limit: int | None) -> dict[str, object]:
    """The JSON document of several targets' plans: `{"dag", "targets": [{"name", ...plan}, ...]}`.

    Args:
        plans: By the target's name, or as `make_plans` returns them.
        limit: Maximum number of chains to list for each; None for all.
    """
    dag = next(iter(plans.values())).name
    targets = [{"name": name.partition(":")[0], **plan.to_json(limit)} for name, plan in plans.items()]
    return {"dag": dag, "targets": targets}


def make_proposal(
    model: str | Path,
    data: Any = None,  # noqa: ANN401  a path or a data configuration, which DataConfig.parse checks
    calibration: object = None,
    proposal_options: ProposalOptions | None = None,
    *,
    anywhere: bool = False,
) -> tuple[Proposal, Plan]:
    """Propose a DAG for a model, and plan it. Writes nothing.

    Args:
        model: Path or URL of the model.
        data: Evaluation data.
        calibration: Calibration data.
        proposal_options: Options of the proposal.
        anywhere: Plan as a machine does that has the target's execution provider.

    Raises:
        InputError: The model or the data cannot be read, or the target is unknown.
    """
    # Both modules are needed only here, and import pydantic's and the store's records.
    from autoopt.data.config import DataConfig
    from autoopt.engine.planning.proposal import existing_store, proposal_for, proposal_inputs

    proposal_options = proposal_options or ProposalOptions()
    accelerator = proposal_options.target().accelerator(frozenset(cpu()["flags"]))
    infos = pass_infos(accelerator)
    file = Path(_fetched(model))
    description = None
    with _Probe() as probe:
        inspection = probe.inspect(file)
        if data is not None:
            config = DataConfig.parse(_fetched(data)).resolved(Path.cwd()).to_json()
            payload = {"data": config, "model": str(file.absolute())}
            description = probe.ask("autoopt.data.worker:describe", payload, str(config.get("path") or "data"))
        providers = probe.execution_providers(accelerator.execution_provider)
    has_calibration = data is not None or calibration is not None
    inputs = proposal_inputs(str(model), inspection, description, has_calibration, proposal_options)
    with existing_store() as store:
        proposal = proposal_for(inputs, proposal_options, infos, Facts(accelerator, inspection, providers), store)
    return proposal, proposal.plan(infos, anywhere=anywhere)


def _fetched(source: Any) -> Any:  # noqa: ANN401  a path or a data configuration
    """The source with downloaded files in place of its URLs."""
    from autoopt.model.fetch import localized

    if isinstance(source, Path):
        source = str(source)
    return localized(source, settings().home / "downloads")


class _Probe:
    """Asks one worker about models, scripts and runtimes. The worker starts with the first question."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._pool: WorkerPool | None = None

    def __enter__(self) -> _Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, function: str, payload: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Call a worker function.

        Args:
            function: `module:function`.
            payload: JSON argument.
            where: What the worker reads, for the error.
        """
        from autoopt.workers import WorkerPool, gated_call

        if self._pool is None:
            self._pool = self._stack.enter_context(WorkerPool(size=1))
        return value_of(gated_call(self._pool, function, dict(payload), SECONDS), where, SECONDS)

    def describe_script(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        return self.ask("autoopt.passes.runner:describe", payload, str(payload["user_script"]))

    def execution_providers(self, provider: str) -> tuple[str, ...]:
        """The execution providers of this interpreter's runtime, asked only for one that not every runtime has."""
        if provider == DEFAULT_EP["cpu"]:
            return (provider,)
        return tuple(self.ask("autoopt.model.worker:providers", {}, provider)["providers"])

    def inspect(self, model: Path) -> Inspection:
        """Inspect a model file, or read the cached inspection of the same bytes."""
        if is_convertible(str(model)) or is_packaged(model):
            remedy = "'autoopt run' converts it itself; 'autoopt apply torch_export' writes the ONNX model"
            raise InputError("must be converted to ONNX before planning", where=str(model), remedy=remedy)
        if not model.is_file():
            raise InputError("no such model file", where=str(model))
        cache = _inspection_cache(model)
        if cache is not None and cache.is_file():
            try:
                return Inspection.from_json(json.loads(cache.read_text()))
            except (ValueError, KeyError, TypeError):
                cache.unlink(missing_ok=True)
        inspection = self.ask("autoopt.model.worker:inspect", {"path": str(model.absolute())}, str(model))
        if cache is not None:
            cache.parent.mkdir(exist_ok=True)
            new = cache.with_suffix(".new")
            new.write_text(json.dumps(inspection))
            new.replace(cache)
        return Inspection.from_json(inspection)


def _inspection_cache(model: Path) -> Path | None:
    """The file for the inspection of these bytes by these versions; None if there is no store yet."""
    home = settings().home
    if not home.is_dir():
        return None
    digest = hashlib.sha256("\n".join(library_version(n) for n in ("autoopt", "onnx", "onnx-ir")).encode())
    with model.open("rb") as stream:
        for block in iter(lambda: stream.read(BLOCK_BYTES), b""):
            digest.update(block)
    return home / "inspections" / f"{digest.hexdigest()}.json"
