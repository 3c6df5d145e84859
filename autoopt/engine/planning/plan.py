"""A plan without a run: what `autoopt plan` and `autoopt.plan` show. Imports no native library itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
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

if TYPE_CHECKING:
    from autoopt.workers import WorkerPool

Ask = Callable[[str, Mapping[str, Any], str], Mapping[str, Any]]
"""(worker function, payload, what to blame) -> its answer."""
SECONDS = 60.0


def make_plan(
    dag: str | Path | Mapping[str, Any] | DagSpec,
    model: str | Path | None = None,
    data: Any = None,
    *,
    calibration: Any = None,
    wish: ProposalOptions | None = None,
    data_root: str | Path | None = None,
) -> Plan:
    """The plan of a DAG for its first target; for a model, where one is given here. Where `dag` is a model itself, the
    plan of what autoopt proposes for it, as `wish` says.

    What has to be known of a model, a runtime or a user script is asked of a worker, and a model's inspection is kept
    beside the store, where there is one.

    Raises:
        InputError: whatever is wrong with what the user gave; one line.
    """
    for given in (data, calibration):
        if isinstance(given, (str, Path)) and "://" not in str(given) and not Path(given).exists():
            raise InputError("no such data", where=str(given))
    if names_model(dag):
        return make_proposal(str(dag), data, calibration, wish)[1]
    refuse_proposal_options(wish)
    spec = load_dag(dag).with_data_root(root_of_data(data_root))
    spec.check_files(model=model is None, data=data is None)
    check_supported(spec)
    with ExitStack() as stack:
        ask = _asker(stack)
        accelerator = spec.all_targets[0].accelerator(frozenset(cpu()["flags"]))
        script, python = _here(spec.script_path), spec.all_targets[0].where.type != "local"
        extra = script_infos(
            script, accelerator, lambda payload: ask("autoopt.passes.runner:describe", payload, str(script))
        )
        facts = Facts(
            accelerator,
            inspection=None if model is None else _inspect(Path(_here(model)), ask),
            installed_eps=None if model is None or python else _providers(accelerator.execution_provider, ask),
            has_calibration=any(
                d is not None for d in (data, calibration, spec.data.calibration, spec.data.evaluation)
            ),
        )
        return compile_plan(spec, pass_infos(accelerator, extra), facts)


def _here(given: Any) -> Any:
    """What is named, with what its URLs give in their place."""
    from autoopt.model.fetch import local

    return local(str(given) if isinstance(given, Path) else given, settings().home / "downloads")


def make_proposal(
    model: str | Path,
    data: Any = None,
    calibration: Any = None,
    wish: ProposalOptions | None = None,
    *,
    anywhere: bool = False,
) -> tuple[Proposal, Plan]:
    """What autoopt proposes for a model, and its plan. Writes nothing; asks a worker. `anywhere`: as a machine plans
    that has the target's execution provider.

    Raises:
        InputError: a model or data that cannot be read, or an unknown target.
    """
    from autoopt.data.config import DataConfig
    from autoopt.engine.planning.proposal import existing_store, given_of, proposal_for

    wish = wish or ProposalOptions()
    with ExitStack() as stack:
        ask = _asker(stack)
        file = Path(_here(model))
        inspection = _inspect(file, ask)
        described = None
        if data is not None:
            config = DataConfig.parse(_here(data)).resolved(Path.cwd()).to_json()
            payload = {"data": config, "model": str(file.absolute())}
            described = ask("autoopt.data.worker:describe", payload, str(config.get("path") or "data"))
        accelerator = wish.target().accelerator(frozenset(cpu()["flags"]))
        infos = pass_infos(accelerator)
        facts = Facts(accelerator, inspection, _providers(accelerator.execution_provider, ask))
        store = existing_store()
        if store is not None:
            stack.enter_context(store)
        known = given_of(str(model), inspection, described, data is not None or calibration is not None, wish)
        proposal = proposal_for(known, wish, infos, facts, store)
        return proposal, proposal.plan(infos, anywhere=anywhere)


def _asker(stack: ExitStack) -> Ask:
    """Asks one worker, which is started with the first question and lives as long as `stack`."""
    pools: list[WorkerPool] = []

    def ask(function: str, payload: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        from autoopt.workers import WorkerPool, gated_call

        if not pools:
            pools.append(stack.enter_context(WorkerPool(size=1)))
        called = gated_call(pools[0], function, dict(payload), SECONDS)
        return value_of(called, where, SECONDS)

    return ask


def _providers(wanted: str, ask: Ask) -> tuple[str, ...]:
    if wanted == "CPUExecutionProvider":
        return (wanted,)  # every runtime has it
    return tuple(ask("autoopt.model.worker:providers", {}, wanted)["providers"])


def _inspect(model: Path, ask: Ask) -> Inspection:
    """The inspection of a model file, from the last time it was asked for where the bytes are the same."""
    if is_convertible(str(model)) or is_packaged(model):
        remedy = "'autoopt run' does that itself; 'autoopt apply torch_export' leaves the ONNX model"
        raise InputError("is planned for once it is converted to ONNX", where=str(model), remedy=remedy)
    if not model.is_file():
        raise InputError("no such model file", where=str(model))
    kept = _kept_at(model)
    if kept is not None and kept.is_file():
        try:
            return Inspection.from_json(json.loads(kept.read_text()))
        except (ValueError, KeyError, TypeError):
            kept.unlink(missing_ok=True)
    payload = {"path": str(model.absolute())}
    found = ask("autoopt.model.worker:inspect", payload, str(model))
    if kept is not None:
        kept.parent.mkdir(exist_ok=True)
        new = kept.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.replace(kept)
    return Inspection.from_json(found)


def _kept_at(model: Path) -> Path | None:
    """Where the inspection of these bytes, by these versions, is kept; None where there is no store yet."""
    home = settings().home
    if not home.is_dir():
        return None
    digest = hashlib.sha256("\n".join(library_version(n) for n in ("autoopt", "onnx", "onnx-ir")).encode())
    with model.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return home / "inspections" / f"{digest.hexdigest()}.json"
