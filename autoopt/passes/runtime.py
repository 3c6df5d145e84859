"""Settings of the runtime as passes: session options, and the arithmetic of a provider."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from autoopt.json_codec import without_nulls
from autoopt.model.session_options import (
    PRECISION_OPTIONS,
    SEARCHED_OPTIONS,
    less_exact,
    plain_options,
    session_config,
    with_provider_options,
)
from autoopt.passes.base import Pass, Refused, SessionOptions
from autoopt.registry import Minimum, ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

_CUDA: Final = "CUDAExecutionProvider"
_OPENVINO: Final = "OpenVINOExecutionProvider"
_DIRECT_OPTIONS: Final = (
    "graph_optimization_level",
    "execution_mode",
    "inter_op_num_threads",
    "intra_op_num_threads",
    "enable_mem_pattern",
    "enable_cpu_mem_arena",
    "io_binding",
)
"""Parameters that are session options of the same name."""
_CONFIG_ENTRIES: Final = {
    "allow_spinning": "session.intra_op.allow_spinning",
    "dynamic_block_base": "session.dynamic_block_base",
    "set_denormal_as_zero": "session.set_denormal_as_zero",
    "disable_prepacking": "session.disable_prepacking",
    "x64quantprecision": "session.x64quantprecision",
    "gelu_approximation": "optimization.enable_gelu_approximation",
}
"""Parameters that are entries of the session configuration, and the keys of the entries."""
_PROVIDER_OPTIONS: Final = {
    "enable_cuda_graph": _CUDA,
    "cudnn_conv_algo_search": _CUDA,
    "prefer_nhwc": _CUDA,
    "use_tf32": _CUDA,
    "num_streams": _OPENVINO,
    "performance_hint": _OPENVINO,
}
"""Parameters that are options of a provider."""
_OWNERS: Final = {**_PROVIDER_OPTIONS, "io_binding": _CUDA}
"""Parameters that only one provider has."""
_CPU_ONLY: Final = ("enable_cpu_mem_arena", "x64quantprecision")


class SessionTuning(Pass):
    """Sets session options of the runtime: optimization level, execution mode, threads, memory.

    `null` leaves an option as it is. Threads are searched where the target lists several, or the user lists values
    here; `null` then is the target's default. The graph stays unchanged; the result is a candidate with other session
    options. Options that equal the runtime's defaults are dropped, so that such a candidate is not measured again.
    """

    conflicts = ("session_tuning",)
    libraries = ("onnxruntime",)

    graph_optimization_level: Annotated[
        Literal["disable", "basic", "extended", "layout", "all"] | None,
        Categorical("all", "extended", "basic"),
        "how far the runtime rewrites the graph on loading",
    ] = None
    execution_mode: Annotated[
        Literal["sequential", "parallel"] | None,
        Categorical("sequential", "parallel"),
        "run operators one after the other, or independent branches in parallel",
    ] = None
    inter_op_num_threads: Annotated[
        int | None,
        Conditional("execution_mode", {"parallel": Categorical(2, 4)}, default=IGNORED),
        "threads for parallel branches; only with execution_mode parallel",
    ] = None
    intra_op_num_threads: Annotated[int | None, Minimum(0), "threads inside one operator; null: the target's"] = None
    enable_mem_pattern: Annotated[
        bool | None,
        Conditional("execution_mode", {"sequential": Boolean()}, default=IGNORED),
        "plan memory ahead; no effect with execution_mode parallel",
    ] = None
    enable_cpu_mem_arena: Annotated[bool | None, "keep freed memory for the next run"] = None
    allow_spinning: Annotated[bool | None, "let threads busy-wait for work; matters only with several threads"] = None
    dynamic_block_base: Annotated[
        int | None, Minimum(0), "smaller blocks of work towards the end of a loop; 0: off"
    ] = None
    set_denormal_as_zero: Annotated[
        bool | None, "treat denormal numbers as zero: much faster for models that have many"
    ] = None
    disable_prepacking: Annotated[bool | None, "do not reorder weights on loading: less memory, slower"] = None
    x64quantprecision: Annotated[bool | None, "exact integer sums on CPUs without VNNI; only for int8 models"] = None
    gelu_approximation: Annotated[bool | None, "use the faster tanh form of Gelu (lossy)"] = None
    disabled_optimizers: Annotated[list[str], "graph optimizers of the runtime to disable, by name"] = []
    io_binding: Annotated[bool | None, Categorical(True, False), "keep inputs and outputs on the device"] = None
    enable_cuda_graph: Annotated[bool | None, "record and replay kernels; fixed shapes only"] = None
    cudnn_conv_algo_search: Annotated[
        Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"] | None,
        Categorical("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
        "how cuDNN chooses a convolution algorithm",
    ] = None
    prefer_nhwc: Annotated[bool | None, Categorical(False, True), "channels last"] = None
    use_tf32: Annotated[bool | None, "TF32 matrix products (lossy)"] = None
    num_streams: Annotated[int | None, Minimum(1), Categorical(None, 2), "inferences at a time; null: 1"] = None
    performance_hint: Annotated[
        Literal["LATENCY", "THROUGHPUT"] | None, Categorical(None, "THROUGHPUT"), "what OpenVINO sets itself up for"
    ] = None
    provider_options: Annotated[dict[str, str], "options of the execution provider, by its own names"] = {}

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        name, provider = parameter.name, accelerator.execution_provider
        is_missing = name in _CPU_ONLY and accelerator.device != "cpu"
        if _OWNERS.get(name, provider) != provider or is_missing:
            return None
        searched = SEARCHED_OPTIONS.get(provider)
        if name == "intra_op_num_threads" and accelerator.threads:
            return replace(parameter, search=Categorical(*accelerator.thread_values))
        if name == "provider_options" and searched:
            return replace(parameter, search=Categorical({}, *searched))
        if provider == _CUDA and name in ("execution_mode", "allow_spinning"):
            return replace(parameter, search=None)
        return parameter

    def run(self, options: SessionOptions) -> None:
        changes = self._values(_DIRECT_OPTIONS)
        config = self._values(_CONFIG_ENTRIES)
        if config:
            entries = {_CONFIG_ENTRIES[name]: _as_text(value) for name, value in config.items()}
            changes["config"] = {**options.get("config", {}), **entries}
        own = {name: _as_text(value) for name, value in self._values(_PROVIDER_OPTIONS).items()}
        if "performance_hint" in own:
            own["PERFORMANCE_HINT"] = own.pop("performance_hint")
        own |= self.provider_options
        provider = self.context.accelerator.execution_provider
        if own:
            changes["provider_options"] = with_provider_options(options.get("provider_options", {}), own)
        if self.disabled_optimizers:
            changes["disabled_optimizers"] = sorted(
                {*options.get("disabled_optimizers", []), *self.disabled_optimizers}
            )
        session_config(changes, provider)
        changed = less_exact(provider, own)
        if changed:
            raise Refused(f"{', '.join(changed)} changes results; the pass provider_precision sets it")
        tuned = plain_options({**options, **changes})
        options.clear()
        options.update(tuned)

    def _values(self, names: Iterable[str]) -> dict[str, Any]:
        """Values of the parameters that are set, by name."""
        values = {name: getattr(self, name) for name in names}
        return without_nulls(values)


def _as_text(value: bool | int | str) -> str:
    """Format a value as onnxruntime's configuration does: booleans are 0 and 1."""
    if isinstance(value, bool):
        return str(int(value))
    return str(value)


class ProviderPrecision(Pass):
    """Has the execution provider compute in half precision where it has kernels for that. The graph stays as it is."""

    tolerance = "lossy"
    conflicts = ("provider_precision",)
    accelerators = tuple(PRECISION_OPTIONS)
    libraries = ("onnxruntime",)

    precision: Annotated[Literal["bf16", "f16"], "type of the arithmetic; f16 is bf16 on CPUs that have only that"] = (
        "bf16"
    )

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        values = list(PRECISION_OPTIONS.get(accelerator.execution_provider, {}))
        if accelerator.device == "cpu" and not {"avx512_fp16", "amx_fp16"} & accelerator.isa:
            return parameter
        return replace(parameter, search=Categorical(values)) if values else parameter

    def run(self, options: SessionOptions) -> None:
        provider = self.context.accelerator.execution_provider
        more = PRECISION_OPTIONS.get(provider, {}).get(self.precision)
        if more is None:
            raise Refused(f"{provider} has no option for {self.precision}")
        options["provider_options"] = with_provider_options(options.get("provider_options", {}), more)
