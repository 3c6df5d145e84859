"""Session options as JSON, and the one place that makes an onnxruntime session from them.

ONNX Runtime accepts unknown configuration keys and unknown optimizer names without a word, and falls back to the CPU
when an execution provider (EP) is absent; so everything is checked here against what is known, before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoopt.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from onnxruntime import InferenceSession, SessionOptions

OPTIMIZATION_LEVELS: Final[Mapping[str, str]] = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}
EXECUTION_MODES: Final[Mapping[str, str]] = {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}

_SWITCH = ("0", "1")
_NUMBER = None
CONFIG_VALUES: Final[Mapping[str, tuple[str, ...] | None]] = {
    "mlas.enable_gemm_fastmath_arm64_bfloat16": _SWITCH,
    "mlas.use_lut_gemm": _SWITCH,
    "optimization.enable_gelu_approximation": _SWITCH,
    "session.disable_prepacking": _SWITCH,
    "session.dynamic_block_base": _NUMBER,
    "session.enable_dq_matmulnbits_fusion": _SWITCH,
    "session.enable_quant_qdq_cleanup": _SWITCH,
    "session.force_spinning_stop": _SWITCH,
    "session.inter_op.allow_spinning": _SWITCH,
    "session.intra_op.allow_spinning": _SWITCH,
    "session.intra_op.spin_duration_us": _NUMBER,
    "session.qdq_matmulnbits_accuracy_level": ("0", "1", "2", "3", "4"),
    "session.qdqisint8allowed": _SWITCH,
    "session.set_denormal_as_zero": _SWITCH,
    "session.use_device_allocator_for_initializers": _SWITCH,
    "session.x64quantprecision": _SWITCH,
}
"""Configuration entries and their values; None: a whole number as text. `session.disable_quant_qdq` is left out on
purpose: with float8 models it gives wrong results silently, and with others it only undoes the quantisation."""

_OPTIMIZERS: Final = """
    AttentionFusion Avx2WeightS8ToU8Transformer BiasDropoutFusion BiasGeluFusion BiasSkipLayerNormFusion
    BiasSoftmaxFusion CastChainElimination CastElimination CastFloat16Transformer ClipQuantRewrite
    CommonSubexpressionElimination ConstantFolding ConstantSharing ConvActivationFusion ConvAddActivationFusion
    ConvAddFusion ConvBNFusion ConvMulFusion DivMulFusion DoubleQDQPairsRemover DQMatMulToMatMulNBits
    DynamicQuantizeMatMulFusion EliminateDropout EliminateIdentity EliminateSlice EmbedLayerNormFusion
    EnsureUniqueDQForNodeUnit
    ExpandElimination FastGeluFusion FuseReluClip GatherSliceToSplitFusion GatherToSliceFusion GatherToSplitFusion
    GeluApproximation GeluFusionL1 GeluFusionL2 GemmActivationFusion GemmSumFusion GemmTransposeFusion
    GroupQueryAttentionFusion IdenticalChildrenConsolidation LabelEncoderFusion LayerNormFusionL1 LayerNormFusionL2
    MatMulActivationFusion MatMulAddFusion MatMulIntegerToFloatFusion MatMulNBitsFusion MatMulScaleFusion
    MatMul_BatchNormalization_Fusion MatmulTransposeFusion NchwcTransformer
    NhwcTransformer NoopElimination NotWhereFusion Pad_Fusion PreShapeNodeElimination PropagateCastOps
    QDQFinalCleanupTransformer QDQPropagationTransformer QDQS8ToU8Transformer QDQSelectorActionTransformer
    QuickGeluFusion ReluQuantRewrite ReshapeFusion SimplifiedLayerNormFusion SkipLayerNormFusion
    SliceConcatToSpaceToDepthFusion TransposeOptimizer UnsqueezeElimination WeightBiasQuantization WhereDummyDq
    """
OPTIMIZERS: Final = frozenset(_OPTIMIZERS.split())
"""Names of onnxruntime's graph optimizers that may be switched off."""

PROVIDER_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "CUDAExecutionProvider": frozenset(
        {
            "arena_extend_strategy",
            "cudnn_conv_algo_search",
            "cudnn_conv_use_max_workspace",
            "device_id",
            "do_copy_in_default_stream",
            "enable_cuda_graph",
            "gpu_mem_limit",
            "prefer_nhwc",
            "use_tf32",
        }
    ),
    "TensorrtExecutionProvider": frozenset(
        {
            "device_id",
            "trt_builder_optimization_level",
            "trt_engine_cache_enable",
            "trt_fp16_enable",
            "trt_int8_enable",
            "trt_max_workspace_size",
        }
    ),
}

_TYPES: Final[Mapping[str, type]] = {
    "execution_mode": str,
    "graph_optimization_level": str,
    "inter_op_num_threads": int,
    "intra_op_num_threads": int,
    "enable_mem_pattern": bool,
    "enable_cpu_mem_arena": bool,
    "config": dict,
    "disabled_optimizers": list,
    "provider_options": dict,
    "io_binding": bool,
}


def check_session_options(
    options: Mapping[str, Any], execution_provider: str = "CPUExecutionProvider"
) -> dict[str, Any]:
    """`options` as a plain dict, every key and value known.

    Keys: `execution_mode` (sequential, parallel), `graph_optimization_level` (disable, basic, extended, layout, all),
    `inter_op_num_threads` and `intra_op_num_threads` (0: the runtime's choice), `enable_mem_pattern`,
    `enable_cpu_mem_arena`, `config` ({entry: text}), `disabled_optimizers` ([name]), `provider_options` ({name: text}
    of the EP), `io_binding`.

    Raises:
        InputError: an unknown key, entry or value; names the nearest.
    """
    for key, value in options.items():
        _known("session option", key, _TYPES)
        wanted = _TYPES[key]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise InputError(f"session option {key!r} must be {wanted.__name__}, not {value!r}")
        if isinstance(value, int) and value < 0:
            raise InputError(f"session option {key!r} must be at least 0, not {value}")
    if "execution_mode" in options:
        _known("execution mode", options["execution_mode"], EXECUTION_MODES)
    if "graph_optimization_level" in options:
        _known("optimization level", options["graph_optimization_level"], OPTIMIZATION_LEVELS)
    for key, value in options.get("config", {}).items():
        _check_entry(key, value)
    for name in options.get("disabled_optimizers", []):
        _known("optimizer", name, OPTIMIZERS)
    for key in options.get("provider_options", {}):
        _known(f"option of {execution_provider}", key, PROVIDER_OPTIONS.get(execution_provider, frozenset()))
    return dict(options)


def _check_entry(key: str, value: Any) -> None:
    _known("session config entry", key, CONFIG_VALUES)
    allowed = CONFIG_VALUES[key]
    good = isinstance(value, str) and (value in allowed if allowed else value.isdecimal())
    if not good:
        wanted = f"one of {', '.join(map(repr, allowed))}" if allowed else "a whole number as text"
        raise InputError(f"session config entry {key!r} must be {wanted}, not {value!r}")


def _known(what: str, word: str, known: Mapping[str, Any] | frozenset[str]) -> None:
    if word not in known:
        raise InputError(
            f"unknown {what} {word!r}", remedy=did_you_mean(word, known) or f"known: {', '.join(sorted(known))}"
        )


RUNTIME_DEFAULTS: Final[Mapping[str, Any]] = {
    "execution_mode": "sequential",
    "graph_optimization_level": "all",
    "enable_mem_pattern": True,
    "enable_cpu_mem_arena": True,
    "io_binding": False,
}
_CONFIG_DEFAULTS: Final[Mapping[str, str]] = {
    "session.intra_op.allow_spinning": "1",
    "session.inter_op.allow_spinning": "1",
    "session.dynamic_block_base": "0",
    "session.set_denormal_as_zero": "0",
    "session.disable_prepacking": "0",
    "session.x64quantprecision": "0",
    "optimization.enable_gelu_approximation": "0",
}


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` without what the runtime does anyway and without empty parts: equal sessions have equal options."""
    kept = {k: v for k, v in options.items() if k not in RUNTIME_DEFAULTS or RUNTIME_DEFAULTS[k] != v}
    if "config" in kept:
        kept["config"] = {k: v for k, v in kept["config"].items() if _CONFIG_DEFAULTS.get(k) != v}
    return {k: v for k, v in sorted(kept.items()) if v not in ({}, [])}


def make_options(
    options: Mapping[str, Any] | None = None, threads: int = 1, execution_provider: str = "CPUExecutionProvider"
) -> SessionOptions:
    """onnxruntime's SessionOptions of checked `options`; `threads` is the intra-op threads where they say nothing.

    Raises:
        InputError: as `check_session_options`.
    """
    import onnxruntime as ort

    checked = check_session_options(options or {}, execution_provider)
    made = ort.SessionOptions()
    made.log_severity_level = 4
    made.intra_op_num_threads = checked.get("intra_op_num_threads", threads)
    made.inter_op_num_threads = checked.get("inter_op_num_threads", 1)
    if "execution_mode" in checked:
        made.execution_mode = getattr(ort.ExecutionMode, EXECUTION_MODES[checked["execution_mode"]])
    if "graph_optimization_level" in checked:
        level = OPTIMIZATION_LEVELS[checked["graph_optimization_level"]]
        made.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    for key in ("enable_mem_pattern", "enable_cpu_mem_arena"):
        if key in checked:
            setattr(made, key, checked[key])
    for key, value in checked.get("config", {}).items():
        made.add_session_config_entry(key, value)
    return made


def make_session(
    path: str | Path,
    session_options: Mapping[str, Any] | None = None,
    execution_provider: str = "CPUExecutionProvider",
    threads: int = 1,
) -> InferenceSession:
    """A session of the model file at `path` on exactly that EP (with the CPU behind it for what the EP leaves).

    Raises:
        InputError: unknown options, or an EP that the installed runtime lacks or silently replaced.
        Exception: onnxruntime's own, where it refuses the model.
    """
    import onnxruntime as ort

    installed = ort.get_available_providers()
    if execution_provider not in installed:
        raise InputError(
            f"{execution_provider} is not in the installed onnxruntime {ort.__version__}",
            remedy=f"it has: {', '.join(installed)}",
        )
    made = make_options(session_options, threads, execution_provider)
    options = session_options or {}
    session = ort.InferenceSession(
        str(path),
        made,
        providers=_providers(execution_provider, options),
        disabled_optimizers=list(options.get("disabled_optimizers", [])),
    )
    if execution_provider not in session.get_providers():
        raise InputError(f"onnxruntime fell back from {execution_provider} to {', '.join(session.get_providers())}")
    return session


def _providers(execution_provider: str, options: Mapping[str, Any]) -> list[Any]:
    chosen = (execution_provider, dict(options.get("provider_options", {})))
    if execution_provider == "CPUExecutionProvider":
        return [chosen]
    return [chosen, ("CPUExecutionProvider", {})]


def caller(
    session: InferenceSession, feeds: Mapping[str, np.ndarray], session_options: Mapping[str, Any] | None = None
) -> Callable[[], Sequence[Any]]:
    """A function that runs `session` on `feeds` once; inputs and outputs are bound beforehand where the options say
    `io_binding` (outputs then stay on the device until they are read)."""
    if not (session_options or {}).get("io_binding"):
        fixed = dict(feeds)
        return lambda: session.run(None, fixed)
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def bound() -> Sequence[Any]:
        session.run_with_iobinding(binding)
        outputs: Sequence[Any] = binding.copy_outputs_to_cpu()
        return outputs

    return bound
