"""Sessions of onnxruntime: the options, the session itself, and files that it writes.

ONNX Runtime falls back to the CPU if an execution provider (EP) is absent, so that is checked before and after.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from autoopt.errors import InputError
from autoopt.json_codec import JsonObject, JsonValue, from_json
from autoopt.model.model_set import MODEL_SET, ModelSet, ModelSetSession, PartObserver, RunPipeline
from autoopt.model.session_options import (
    EXECUTION_MODES,
    OPTIMIZATION_LEVELS,
    THREADS_OPTION,
    SessionConfig,
    session_config,
)
from autoopt.model.split import as_deployed
from autoopt.script import load_script
from autoopt.target import DEFAULT_EP, DEVICE_OF

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions


_KERNEL: Final = "_kernel_time"
"""End of the names of the profiler's events that time a node."""
OPTIMIZED_WEIGHTS: Final = "session.optimized_model_external_initializers_file_name"
"""Configuration entry: the file for the weights of the model that a session writes."""
NO_PREPACKING: Final = "session.disable_prepacking"
"""Configuration entry, `1`: no copy of the weights in the layout of the kernels."""


def session_document(
    options: JsonObject,
    execution_provider: str = "CPUExecutionProvider",
    threads: int = 1,
    affinity: Sequence[int] = (),
) -> dict[str, JsonValue]:
    """Describe a session as `session.json` does.

    `threads` counts where the options give none; 0 leaves them to the runtime. `affinity` are the cores that the
    process was bound to.

    Raises:
        InputError: an unknown option, as a recipe may have.
    """
    config = session_config(options, execution_provider)
    if config.intra_op_num_threads is not None:
        threads = config.intra_op_num_threads
    own_options = dict(config.provider_options)
    if threads and execution_provider in THREADS_OPTION:
        own_options.setdefault(THREADS_OPTION[execution_provider], str(threads))
    # The CPU runs the nodes that the EP does not support.
    providers = {execution_provider: own_options}
    providers.setdefault("CPUExecutionProvider", {})
    # Without binding, every inference on a device also copies its inputs there; measurements bind them.
    is_bound = bool(options.get("io_binding", DEVICE_OF.get(execution_provider) != "cpu"))
    return {
        "session_options": {
            "graph_optimization_level": OPTIMIZATION_LEVELS[config.graph_optimization_level],
            "execution_mode": EXECUTION_MODES[config.execution_mode],
            "intra_op_num_threads": threads,
            "inter_op_num_threads": config.inter_op_num_threads,
            "enable_mem_pattern": config.enable_mem_pattern,
            "enable_cpu_mem_arena": config.enable_cpu_mem_arena,
        },
        "session_config_entries": dict(config.config),
        "inference_session": {
            "providers": list(providers),
            "provider_options": list(providers.values()),
            "disabled_optimizers": list(config.disabled_optimizers),
        },
        "io_binding": is_bound,
        "affinity": list(affinity),
    }


def make_options(
    options: JsonObject | None = None, threads: int = 1, execution_provider: str = "CPUExecutionProvider"
) -> SessionOptions:
    """Make onnxruntime's SessionOptions. `threads` is the number of intra-op threads unless the options set it.

    Raises:
        InputError: as `session_config`.
    """
    return _arguments(session_document(options or {}, execution_provider, threads))[0]


def _arguments(document: Mapping[str, Any]) -> tuple[SessionOptions, dict[str, Any]]:
    """The arguments of `InferenceSession` for a session that tells nothing on the terminal."""
    from autoopt.model.run_package import session_arguments

    options, arguments = session_arguments(document)
    options.log_severity_level = 4
    return options, arguments


def make_session(  # noqa: PLR0913  one argument for each thing that sessions differ in
    path: str | Path,
    session_options: JsonObject | None = None,
    execution_provider: str = "CPUExecutionProvider",
    threads: int = 1,
    *,
    timed: bool = True,
    profile_prefix: str = "",
    script: str | None = None,
    graph: bytes | None = None,
) -> InferenceSession:
    """Open a session of the model file at `path` on this EP, and on the CPU for nodes that the EP does not support.

    A split model is opened as its users will open it, because times and memory depend on that; if only the outputs
    matter and nobody has it `timed`, as it is stored, which saves a copy. With `profile_prefix`, the runtime's profiler
    writes a file whose path begins with it. A model set gives a session with the same methods; `script` defines its
    pipeline, if it has one. A `graph` takes the place of the file's.

    Raises:
        InputError: unknown options, or an EP that the installed runtime lacks or silently replaced.
        Exception: onnxruntime's own, where it refuses the model.
    """
    if Path(path).name == MODEL_SET:
        open_model = partial(make_session, execution_provider=execution_provider, threads=threads, timed=timed)
        model_set = make_set_session(Path(path), open_model, session_options, script=script)
        return cast("InferenceSession", model_set)
    with as_deployed(Path(path)) if timed else nullcontext(Path(path)) as file:
        return _open_session(file, session_options or {}, execution_provider, threads, profile_prefix, graph)


def make_plain_session(path: str | Path, *, packs_weights: bool = True, graph: bytes | None = None) -> InferenceSession:
    """Open a session that runs a model as it is: without the runtime's graph optimization, on one thread of the CPU.

    With `graph`, it runs that one on the model's weights.

    It allocates no memory ahead: the runtime doubles its reserve until it holds several times the model's weights.
    Unless it `packs_weights`, it makes no copy of the weights in the layout of its kernels, and external data stay in
    the file. Inferences then take longer, and MatMulNBits takes float instead of int8 activations.
    """
    options: dict[str, JsonValue] = {"graph_optimization_level": "disable", "enable_cpu_mem_arena": False}
    if not packs_weights:
        options["config"] = {NO_PREPACKING: "1"}
    return _open_session(path, options, graph=graph)


def _open_session(
    path: str | Path,
    session_options: JsonObject,
    execution_provider: str = "CPUExecutionProvider",
    threads: int = 1,
    profile_prefix: str = "",
    graph: bytes | None = None,
) -> InferenceSession:
    """Open a session of a model file as it is, or of another `graph` on its weights; see `make_session`."""
    import onnxruntime as ort

    check_installed(execution_provider)
    options, arguments = _arguments(session_document(session_options, execution_provider, threads))
    if execution_provider != DEFAULT_EP["cpu"]:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    if graph is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(Path(path).parent))
    session = ort.InferenceSession(graph or str(path), options, **arguments)
    check_no_fallback(session, execution_provider)
    return session


def write_optimized(
    path: str | Path,
    target: Path,
    session_options: JsonObject,
    entries: Mapping[str, str] | None = None,
    execution_provider: str = "CPUExecutionProvider",
    *,
    as_stored: bool = False,
) -> None:
    """Write the model at `path` to `target` as the runtime optimizes it with these options.

    `entries` are configuration entries beside those that candidates may have. With `as_stored`, the new file of a split
    model refers to its weights, as if it were in the same folder.

    Raises:
        InputError: as `session_config`.
        Exception: onnxruntime's own, where it refuses the model.
    """
    import onnxruntime as ort

    options = make_options(session_options)
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry(NO_PREPACKING, "1")  # a copy of all weights that only runs need
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    disabled = from_json(SessionConfig, session_options).disabled_optimizers
    opened: AbstractContextManager[Path] = nullcontext(Path(path))
    if not as_stored and OPTIMIZED_WEIGHTS not in (entries or {}):  # the new file would refer to shared weights
        opened = as_deployed(Path(path))
    with opened as file:
        ort.InferenceSession(str(file), options, providers=[execution_provider], disabled_optimizers=disabled)


def kernel_times(events: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[float]]:
    """Read the runtime's profile: microseconds of each run of a node, by its name and the type of its operator."""
    durations: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(_KERNEL):
            durations[name.removesuffix(_KERNEL), event.get("args", {}).get("op_name", "")].append(event["dur"])
    return durations


def make_set_session(
    path: Path,
    open_model: Callable[[str, JsonObject], InferenceSession],
    session_options: JsonObject | None = None,
    observe: PartObserver | None = None,
    script: str | None = None,
) -> ModelSetSession:
    """Open the parts of a model set.

    Args:
        path: Its description.
        open_model: Opens the session of a part: its file and session options.
        session_options: They override a part's own options, but not its configuration entries.
        observe: Receives the inputs of each part that runs.
        script: Defines the pipeline of the set, if it has one.

    Raises:
        InputError: the script has no such function.
    """
    given = dict(session_options or {})

    def open_part(file: Path, own: Mapping[str, JsonValue]) -> InferenceSession:
        options = {**own, **given}
        entries = [each.get("config", {}) for each in (given, own)]
        config = {name: value for each in entries if isinstance(each, Mapping) for name, value in each.items()}
        if config:
            options["config"] = config
        return open_model(os.path.normpath(file), options)

    description = ModelSet.read(path)
    if description.pipeline is None:
        return ModelSetSession(path, open_part, observe, description)
    name = description.pipeline.function
    if script is None:
        raise InputError(f"the models run in the pipeline {name!r} of a script", remedy="name the script")
    function = getattr(load_script(script), name, None)
    if not callable(function):
        raise InputError(f"no function {name!r}", where=script, remedy="name one in pipeline:")
    return ModelSetSession(path, open_part, observe, description, cast("RunPipeline", function))


def check_installed(execution_provider: str) -> None:
    """Check that the installed runtime, or a plug-in beside it, has an EP.

    Raises:
        InputError: it lacks the EP.
    """
    import onnxruntime as ort

    from autoopt.model.run_package import has_provider

    if not has_provider(execution_provider):
        raise InputError(
            f"{execution_provider} is not in the installed onnxruntime {ort.__version__}",
            remedy=f"it has: {', '.join(ort.get_available_providers())}",
        )


def check_no_fallback(session: InferenceSession, execution_provider: str) -> None:
    """Check that a session runs on the requested EP.

    Raises:
        InputError: the runtime silently replaced it.
    """
    if execution_provider not in session.get_providers():
        raise InputError(f"onnxruntime fell back from {execution_provider} to {', '.join(session.get_providers())}")


def is_idle(session: InferenceSession, execution_provider: str) -> bool:
    """True if an EP takes no node of a session's model, so that the CPU provider runs all of it, and onnxruntime tells.

    onnxruntime tells since 1.24.
    """
    if execution_provider == DEFAULT_EP["cpu"] or not hasattr(session, "get_provider_graph_assignment_info"):
        return False
    return all(part.ep_name != execution_provider for part in session.get_provider_graph_assignment_info())
