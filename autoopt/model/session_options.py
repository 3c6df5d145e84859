"""Session options as JSON: every key, entry and value that sessions accept.

ONNX Runtime silently accepts unknown configuration keys and optimizer names, so everything is checked here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from autoopt.errors import InputError, did_you_mean
from autoopt.json_codec import JsonObject, JsonTypeError, JsonValue, from_json

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
purpose: with float8 models it silently gives wrong results, and with others it only undoes the quantization."""

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
    "OpenVINOExecutionProvider": frozenset({"load_config", "num_of_threads"}),
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

OPTION_TYPES: Final[Mapping[str, type]] = {
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

RUNTIME_DEFAULTS: Final[Mapping[str, JsonValue]] = {
    "execution_mode": "sequential",
    "graph_optimization_level": "all",
    "enable_mem_pattern": True,
    "enable_cpu_mem_arena": True,
    "io_binding": False,
}
CONFIG_DEFAULTS: Final[Mapping[str, str]] = {
    "session.intra_op.allow_spinning": "1",
    "session.inter_op.allow_spinning": "1",
    "session.dynamic_block_base": "0",
    "session.set_denormal_as_zero": "0",
    "session.disable_prepacking": "0",
    "session.x64quantprecision": "0",
    "optimization.enable_gelu_approximation": "0",
}


@dataclass(frozen=True)
class SessionConfig:
    """Checked session options, typed, with the runtime's defaults. None leaves the choice to the target."""

    execution_mode: str = "sequential"
    graph_optimization_level: str = "all"
    inter_op_num_threads: int = 1
    intra_op_num_threads: int | None = None
    enable_mem_pattern: bool = True
    enable_cpu_mem_arena: bool = True
    config: Mapping[str, str] = field(default_factory=dict)
    disabled_optimizers: list[str] = field(default_factory=list)
    provider_options: Mapping[str, str] = field(default_factory=dict)
    io_binding: bool = False


def session_config(options: JsonObject, execution_provider: str = "CPUExecutionProvider") -> SessionConfig:
    """Check that every key and value is known; return the options as a typed record.

    Keys: `execution_mode` (sequential, parallel), `graph_optimization_level` (disable, basic, extended, layout, all),
    `inter_op_num_threads` and `intra_op_num_threads` (0: the runtime's choice), `enable_mem_pattern`,
    `enable_cpu_mem_arena`, `config` ({entry: text}), `disabled_optimizers` ([name]), `provider_options` ({name: text}
    of the EP), `io_binding`.

    Raises:
        InputError: an unknown key, entry or value; the message suggests the nearest.
    """
    for key, value in options.items():
        _check_option(key, value)
    entries = options.get("config", {})
    assert isinstance(entries, Mapping)
    check_entries(entries)
    try:
        config = from_json(SessionConfig, options)
    except JsonTypeError as error:
        raise InputError(f"session option {error}") from None
    _check_name("execution mode", config.execution_mode, EXECUTION_MODES)
    _check_name("optimization level", config.graph_optimization_level, OPTIMIZATION_LEVELS)
    for name in config.disabled_optimizers:
        _check_name("optimizer", name, OPTIMIZERS)
    check_provider_options(execution_provider, config.provider_options)
    return config


def check_entries(entries: JsonObject) -> None:
    """Check that configuration entries and their values are known: some would write files or read others.

    Raises:
        InputError: an unknown entry or value.
    """
    for key, value in entries.items():
        _check_entry(key, value)


def check_provider_options(execution_provider: str, options: Mapping[str, str]) -> None:
    """Check that an EP's options are known: some would load libraries or read files.

    Raises:
        InputError: an unknown option.
    """
    known = PROVIDER_OPTIONS.get(execution_provider, frozenset())
    for name in options:
        _check_name(f"option of {execution_provider}", name, known)
    if not options.get("load_config", "{").startswith("{"):
        raise InputError(f"option 'load_config' must be JSON, not {options['load_config']!r}")


def _check_option(key: str, value: JsonValue) -> None:
    _check_name("session option", key, OPTION_TYPES)
    expected = OPTION_TYPES[key]
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise InputError(f"session option {key!r} must be {expected.__name__}, not {value!r}")
    if isinstance(value, int) and value < 0:
        raise InputError(f"session option {key!r} must be at least 0, not {value}")


def _check_entry(key: str, value: JsonValue) -> None:
    _check_name("session config entry", key, CONFIG_VALUES)
    allowed = CONFIG_VALUES[key]
    if allowed is None:
        if not isinstance(value, str) or not value.isdecimal():
            raise InputError(f"session config entry {key!r} must be a whole number as text, not {value!r}")
    elif value not in allowed:
        raise InputError(f"session config entry {key!r} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def _check_name(noun: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        remedy = did_you_mean(name, names) or f"known: {', '.join(sorted(names))}"
        raise InputError(f"unknown {noun} {name!r}", remedy=remedy)


def plain_options(options: JsonObject) -> dict[str, JsonValue]:
    """Remove the runtime's defaults and empty parts, so that equal sessions have equal options."""
    plain: dict[str, JsonValue] = {}
    for name, value in sorted(options.items()):
        if name == "config" and isinstance(value, Mapping):
            value = {entry: text for entry, text in value.items() if CONFIG_DEFAULTS.get(entry) != text}
        if value not in ({}, []) and (name not in RUNTIME_DEFAULTS or RUNTIME_DEFAULTS[name] != value):
            plain[name] = value
    return plain
