"""Session tuning: how the runtime is to run the model; the graph stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from autoopt.model.session import check_session_options, plain_options
from autoopt.passes.base import Pass
from autoopt.registry import ParameterInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.target import Accelerator

if TYPE_CHECKING:
    from onnx import ModelProto


_CUDA = "CUDAExecutionProvider"


_CONFIG = {
    "allow_spinning": "session.intra_op.allow_spinning",
    "dynamic_block_base": "session.dynamic_block_base",
    "set_denormal_as_zero": "session.set_denormal_as_zero",
    "disable_prepacking": "session.disable_prepacking",
    "x64quantprecision": "session.x64quantprecision",
    "gelu_approximation": "optimization.enable_gelu_approximation",
}


_CUDA_OPTIONS = ("enable_cuda_graph", "cudnn_conv_algo_search", "prefer_nhwc", "use_tf32")


_CPU_ONLY = ("enable_cpu_mem_arena", "x64quantprecision")


class SessionTuning(Pass):
    """Sets the runtime's session options: optimisation level, execution mode, threads, memory.

    `null` leaves an option as it is. Threads are not searched unless the user lists values, because the target says
    how many there are to spend. Changes nothing in the graph: the outcome is a candidate with other session options.
    Options that say what the runtime does anyway are left out, so that such a candidate is not measured again.
    """

    family: ClassVar[str] = "runtime"
    session_only = True
    conflicts = ("session_tuning", "fp8_quantization")
    libraries = ("onnxruntime",)
    aliases = ("OrtSessionParamsTuning", "OrtPerfTuning")

    graph_optimization_level: Annotated[
        Literal["disable", "basic", "extended", "layout", "all"] | None,
        Categorical("all", "extended", "basic"),
        "how far the runtime rewrites the graph when it loads it",
    ] = None
    execution_mode: Annotated[
        Literal["sequential", "parallel"] | None,
        Categorical("sequential", "parallel"),
        "one operator after the other, or independent branches at once",
    ] = None
    inter_op_num_threads: Annotated[
        int | None,
        Conditional("execution_mode", {"parallel": Categorical(2, 4)}, default=IGNORED),
        "threads over branches; only with execution_mode parallel",
    ] = None
    intra_op_num_threads: Annotated[int | None, "threads inside one operator; null: the target's"] = None
    enable_mem_pattern: Annotated[
        bool | None,
        Conditional("execution_mode", {"sequential": Boolean()}, default=IGNORED),
        "plan memory ahead; has no effect with execution_mode parallel",
    ] = None
    enable_cpu_mem_arena: Annotated[bool | None, "keep freed memory for the next run"] = None
    allow_spinning: Annotated[bool | None, "threads wait busily for work; has a meaning with several threads"] = None
    dynamic_block_base: Annotated[int | None, "smaller blocks of work towards the end of a loop; 0 is off"] = None
    set_denormal_as_zero: Annotated[bool | None, "treat tiny numbers as zero: much faster where a model has many"] = (
        None
    )
    disable_prepacking: Annotated[bool | None, "do not reorder weights on loading: less memory, slower"] = None
    x64quantprecision: Annotated[bool | None, "exact integer sums on CPUs without VNNI; only for int8 models"] = None
    gelu_approximation: Annotated[bool | None, "the faster tanh form of Gelu (lossy)"] = None
    disabled_optimizers: Annotated[list[str], "the runtime's graph optimizers to switch off, by name"] = []
    io_binding: Annotated[bool | None, Categorical(True, False), "keep inputs and outputs on the device"] = None
    enable_cuda_graph: Annotated[bool | None, "record and replay kernels; fixed shapes only"] = None
    cudnn_conv_algo_search: Annotated[
        Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"] | None,
        Categorical("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
        "how cuDNN picks a convolution",
    ] = None
    prefer_nhwc: Annotated[bool | None, Categorical(False, True), "channels last"] = None
    use_tf32: Annotated[bool | None, "TF32 matrix products (lossy)"] = None

    @classmethod
    def offer(cls, parameter: ParameterInfo, accelerator: Accelerator) -> ParameterInfo | None:
        cuda = accelerator.execution_provider == _CUDA
        if parameter.name in (*_CUDA_OPTIONS, "io_binding"):
            return parameter if cuda else None
        if parameter.name in _CPU_ONLY and accelerator.device != "cpu":
            return None
        if cuda and parameter.name in ("execution_mode", "allow_spinning"):
            return replace(parameter, search=None)
        return parameter

    def run(self, model: ModelProto) -> None:
        options = self.context.session_options
        chosen: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "graph_optimization_level",
                "execution_mode",
                "inter_op_num_threads",
                "intra_op_num_threads",
                "enable_mem_pattern",
                "enable_cpu_mem_arena",
                "io_binding",
            )
            if getattr(self, name) is not None
        }
        config = {
            entry: _text(getattr(self, name)) for name, entry in _CONFIG.items() if getattr(self, name) is not None
        }
        provider = {name: _text(getattr(self, name)) for name in _CUDA_OPTIONS if getattr(self, name) is not None}
        if config:
            chosen["config"] = {**options.get("config", {}), **config}
        if provider:
            chosen["provider_options"] = {**options.get("provider_options", {}), **provider}
        if self.disabled_optimizers:
            chosen["disabled_optimizers"] = sorted({*options.get("disabled_optimizers", []), *self.disabled_optimizers})
        check_session_options(chosen, self.context.accelerator.execution_provider)
        tuned = plain_options({**options, **chosen})
        options.clear()
        options.update(tuned)


def _text(value: bool | int | str) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
