"""Read what a request names: its DAG, or the models of a file, folder or archive. Only an archive needs a worker.

A folder of a Hugging Face model without ONNX files is exported first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from autoopt.dag import check_dag, read_dag
from autoopt.data.config import BUILT_IN, DataConfig, check_exists, map_texts, unknown_component
from autoopt.distributions import library_version
from autoopt.errors import InputError, did_you_mean
from autoopt.measure.settings import SETTINGS, MeasurementSettings
from autoopt.model.candidate import digest_json
from autoopt.model.fetch import fetch, has_secret, shown_source
from autoopt.model.files import digest_file
from autoopt.model.packaged_models import CONFIG, is_archive, is_checkpoint, is_packaged
from autoopt.problem.environment import cpu
from autoopt.problem.run_request import RunRequest, absolute_path
from autoopt.settings import root_of_data, settings
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.data import WHICH
from autoopt.spec.document import Document, Json, check_text
from autoopt.spec.model_parts import models_in, parse_models
from autoopt.spec.proposal_options import ProposalOptions, names_model, refuse_proposal_options
from autoopt.spec.source import FieldError, Place
from autoopt.workers import call_once
from autoopt.working_folder import EXPORTED, working_folder

MANY_CORES = 4
"""Cores from which on two threads are not all."""
UNPACK_SECONDS: Final = 600.0
"""Time limit for unpacking an archive of models, in a worker."""
EXPORT_SECONDS: Final = 3600.0
"""Time limit for exporting a Hugging Face model, in a worker."""
EXPORTERS: Final = ("optimum-onnx", "transformers", "torch")


def load(request: RunRequest) -> tuple[RunRequest, DagSpec]:
    """Read the DAG of a request, and check that what it names exists and can be done.

    Returns:
        The request with the DAG as read, and the DAG.

    Raises:
        InputError: as `spec_of`, or a file is missing.
    """
    request = read(request)
    spec = spec_of(request)
    check_exists(root_of_data(request.data_root), request.data, request.calibration)
    check_dag(spec, model=request.model is None, data=request.data is None)
    return request, spec


def read(request: RunRequest) -> RunRequest:
    """The request with its DAG as read, so that later changes of the file have no effect.

    Raises:
        ConfigError: The DAG is wrong.
    """
    home = request.home or settings().home
    if names_model(request.dag):
        return request
    if isinstance(request.dag, str | Path) and holds_models(request.dag):
        first, parts = read_models([str(request.dag)], home)
        return replace(request, dag=first, parts=parts)
    file = absolute_path(request.dag) if isinstance(request.dag, str | Path) else request.dag_file
    data = request.data is None and root_of_data(request.data_root) is None
    dag = read_dag(request.dag, request.fields, model=request.model is None, data=data)
    if request.model is not None and not holds_models(request.model):
        return replace(request, dag=dag, dag_file=file)
    return replace(request, dag=with_models(dag, home, request.model), model=None, dag_file=file)


def spec_of(request: RunRequest) -> DagSpec:
    """Read the DAG that a request names.

    For a bare model, the DAG only names the model and the target; the graph is proposed once the model is read.

    Raises:
        InputError: The DAG is wrong or asks for something unsupported, or options for a bare model came with a DAG.
    """
    if not names_model(request.dag):
        refuse_proposal_options(request.proposal_options)
        cache = (request.home or settings().home) / "downloads"
        spec = _without_secret_parameters(read_dag(request.dag, request.fields), cache)
        spec = spec.with_data_root(root_of_data(request.data_root))
        check_supported(spec)
        if request.target is not None:
            spec = spec.for_target(request.target)
        return spec
    if request.model is None and "://" not in str(request.dag) and not Path(request.dag).is_file():
        raise InputError("no such model file", where=str(request.dag))
    try:
        check_text(str(request.dag))
    except FieldError as error:
        raise InputError(
            f"its path {error.reason}", where=str(request.dag), remedy="rename the file or folder"
        ) from error
    placeholder = {
        "name": "proposed",
        "model": str(request.dag),
        "target": machine_options(request.proposal_options).target().model_dump(exclude={"name"}),
        "passes": {"names": "name_fix"},
        "chains": [["names"]],
    }
    return load_dag(placeholder)


def machine_options(options: ProposalOptions) -> ProposalOptions:
    """Complete the options of a proposal: on a CPU with several cores, threads that the user left open are searched."""
    cores = cpu()["cores"]
    if options.threads is not None or cores < 2 or options.target().device != "cpu":
        return options
    if cores < MANY_CORES:
        return replace(options, threads="1,all")
    return replace(options, threads="1,2,all")


def check_supported(spec: DagSpec) -> None:
    """Check that a run of this DAG can do what it says.

    Raises:
        ConfigError: At the field that it cannot honour.
    """
    _check_measurement(spec)
    _check_data_components(spec)
    _check_interpreters(spec)
    if spec.search.order != "joint":
        return
    for node, pass_spec in spec.passes.items():
        if pass_spec.objectives:
            remedy = "write search: {strategy: per-chain, order: pass-by-pass}"
            raise spec.error(("passes", node, "objectives"), "only a pass-by-pass search uses them", remedy)


def _check_measurement(spec: DagSpec) -> None:
    for name, value in spec.measurement.items():
        if name not in SETTINGS:
            hint = did_you_mean(name, SETTINGS) or f"known: {', '.join(SETTINGS)}"
            raise spec.error(("measurement", name), "unknown field", hint)
        try:
            MeasurementSettings.parse({name: value})
        except InputError as error:
            raise spec.error(("measurement", name), error.what.removeprefix(f"{name}: ")) from None


def _check_data_components(spec: DagSpec) -> None:
    """Check the names of components where no user script can define them."""
    if spec.user_script is not None:
        return
    for which in WHICH:
        value = getattr(spec.data, which)
        if not isinstance(value, dict):
            continue
        config = DataConfig.parse(value)
        if config.user_script is not None:
            continue
        for kind, part in config.components():
            if part.type not in BUILT_IN[kind]:
                error = unknown_component(kind, part.type)
                raise spec.error(("data", which, kind), error.what, error.remedy)


def _check_interpreters(spec: DagSpec) -> None:
    interpreters: list[tuple[Place, str]] = [(("host",), spec.host.python)]
    for node, pass_spec in spec.passes.items():
        if pass_spec.host is not None:
            interpreters.append((("passes", node, "host"), pass_spec.host.python))
    for index, target in enumerate(spec.all_targets):
        place: Place = ("targets", index) if spec.targets else ("target",)
        if not target.python:
            place = (*place, "host")
        if not target.work_pool:  # else it is on another machine
            interpreters.append((place, target.where.python))
    for place, python in interpreters:
        if python and shutil.which(python) is None:
            raise spec.error((*place, "python"), f"no such interpreter: {python}")


def _without_secret_parameters(spec: DagSpec, cache: Path) -> DagSpec:
    """The DAG with the files behind URLs with secrets in parameters of passes, which plans, results and recipes keep.

    Raises:
        InputError: One cannot be fetched.
    """
    document = spec.document.value
    assert isinstance(document, dict), "a DAG is a mapping"
    passes = document.get("passes")

    def fetched(text: str) -> str:
        return str(fetch(text, cache)) if has_secret(text) else text

    public_passes = cast("Json", map_texts(passes, fetched))
    if public_passes == passes:
        return spec
    return load_dag(Document({**document, "passes": public_passes}, spec.source))


def holds_models(path: str | Path) -> bool:
    """True for an archive and for a folder, unless MLflow put a model there."""
    return is_archive(str(path)) or (Path(path).is_dir() and not is_packaged(Path(path)))


def read_models(arguments: Sequence[str], home: Path) -> tuple[str, dict[str, str]]:
    """Read what a command names as `parse_models` does; of an archive, the models that are in it.

    Raises:
        InputError: as in `parse_models`, an archive that cannot be read, or a Hugging Face model without an export.
    """
    if "" in arguments:  # a shell variable that is not set
        raise InputError("is empty", where="the name of a DAG or model", remedy="name a file or folder")
    if len(arguments) > 1 or not holds_models(arguments[0]):
        return parse_models(arguments)
    models = models_of(arguments[0], home)
    return next(iter(models.values())), models if len(models) > 1 else {}


def models_of(path: str, home: Path) -> dict[str, str]:
    """The models of a folder or an archive, by name.

    Raises:
        InputError: it cannot be read, or has no model.
    """
    is_packed, folder = is_archive(path), Path(path)
    if is_packed:
        folder = unpacked(path, home)
    if is_checkpoint(folder):
        folder = exported(folder, home)
    try:
        return models_in(folder)
    except InputError:
        if not is_packed:
            raise
        raise InputError("no .onnx file in this archive", where=shown_source(path)) from None


def with_models(spec: DagSpec, home: Path, model: str | Path | None = None) -> DagSpec:
    """The DAG with the models of the folder or archive that is its model, or that `model` names instead.

    Raises:
        ConfigError: the folder or archive has no models, or not several where the DAG connects them.
    """
    path = str(model or spec.model_path or "")
    if not path or not holds_models(path):
        return spec
    try:
        models = models_of(path, home)
    except InputError as error:
        if model is not None:
            raise
        raise spec.error(("model",), error.what, error.remedy) from None
    value: Json = {**models}
    if len(models) == 1:
        (value,) = models.values()
    assert isinstance(spec.document.value, dict), "a DAG is a mapping"
    return load_dag(Document({**spec.document.value, "model": value}, spec.source))


def unpacked(archive: str, home: Path) -> Path:
    """The folder with the files of an archive, a path or URL, which is unpacked once for each content.

    Raises:
        InputError: it cannot be fetched or unpacked.
    """
    file = fetch(archive, home / "downloads")
    if not file.is_file():
        raise InputError("no such file", where=shown_source(archive))
    folder = home / "unpacked" / digest_file(file)
    _fill(folder, folder.parent, "autoopt.model.packaged_models:unpack", file, UNPACK_SECONDS)
    return folder


def exported(checkpoint: Path, home: Path) -> Path:
    """The folder with the ONNX models of a Hugging Face model, which is exported once for each content.

    Raises:
        InputError: Optimum is not installed, or cannot export the model.
    """
    files = sorted(path for path in checkpoint.iterdir() if path.name == CONFIG or path.suffix == ".safetensors")
    content = [[path.name, digest_file(path)] for path in files]
    exports = home / EXPORTED
    folder = exports / digest_json([content, *map(library_version, EXPORTERS)]) / checkpoint.absolute().name
    _fill(folder, exports, "autoopt.model.packaged_models:export", checkpoint.absolute(), EXPORT_SECONDS)
    os.utime(folder.parent)  # `store gc` removes what has not been used for a week
    return folder


def _fill(folder: Path, scratch_parent: Path, function: str, source: Path, limit: float) -> None:
    """Let a worker make a folder with the models of `source`, unless it exists."""
    if folder.is_dir():
        return
    with working_folder(scratch_parent) as scratch:
        new = scratch / folder.name
        new.mkdir()
        made = call_once(function, {"source": str(source), "dest": str(new)}, timeout=limit)
        if not made.outcome.good:
            raise made.to_exception()
        folder.parent.mkdir(exist_ok=True)
        if not folder.exists():  # another process may have made the same meanwhile
            new.rename(folder)
