"""Nodes of proposed graphs: pass, values to search, and the lowest level that tries each value.

Levels: 0 lossless, 1 equal up to rounding, 2 lossy without data, 3 everything. The first value of a parameter is
the one that the pass takes if no other value is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from autoopt.space import Value

Values: TypeAlias = tuple[tuple[Value, int], ...]
"""(value, lowest level that tries it)."""

DENSE: Final = ["MatMul", "Attention", "LSTM"]
"""Operators of dynamic quantization without convolutions (MatMul includes Gemm)."""
HEAVY: Final = ["Conv", "Gemm", "MatMul"]


@dataclass(frozen=True)
class Template:
    """One node of a proposed graph.

    `size`: smallest share of the source's bytes that can be left, for targets with little memory.
    """

    pass_name: str
    summary: str
    search: Mapping[str, Values] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    size: float = 1.0
    lossy: bool = False


_CALIBRATION: Final[Mapping[str, Values]] = {
    "per_channel": ((True, 3), (False, 3)),
    "calibrate_method": (("MinMax", 3), ("Percentile", 3), ("Entropy", 3)),
}
_BOTH: Final[Values] = ((True, 2), (False, 2))

TEMPLATES: Final[Mapping[str, Template]] = {
    "names": Template("name_fix", "rename tensors whose names the runtime rejects"),
    "ir": Template("ir_upgrade", "upgrade the file format for later passes"),
    "opset": Template("opset_conversion", "convert to a newer operator set", fixed={"target_opset": 17}),
    "float32": Template("float32", "compute in float32 instead of 16-bit floats"),
    "float64": Template("float64_to_float32", "compute in float32 instead of float64", size=0.5, lossy=True),
    "inline": Template("inline_functions", "replace calls of the model's own functions with their bodies"),
    "dequantize": Template("dequantize", "take the quantization of the model back", lossy=True),
    "unsigned": Template("unsigned_activations", "make signed activations of a quantized model unsigned", lossy=True),
    "split": Template("split_fused_layers", "split what onnxruntime fused when it saved the model"),
    "specialize": Template("specialize_inputs", "make constant and fix what never changes in the data"),
    "shapes": Template("fix_input_shape", "fix the input shapes"),
    "unused": Template("remove_unused", "remove everything that no output needs"),
    "shared": Template("common_subexpression_elimination", "compute equal subexpressions once"),
    "loops": Template("loop_invariant_code_motion", "compute in front of a loop what no iteration changes"),
    "simplify": Template("simplify", "simplify the graph", {"engine": (("onnxslim", 1), ("onnxsim", 3))}),
    "constants": Template(
        "constant_folding",
        "fold constants and change nothing else",
        fixed={"input_size_limit": 2**24, "output_size_limit": 2**20},
    ),
    "fold": Template("batchnorm_folding", "fold batch normalization into the convolution before it"),
    "activations": Template("hard_sigmoid_fusion", "join hard sigmoid and hard swish into one operator"),
    "pads": Template("pad_folding", "fold padding into the convolution after it"),
    "rows": Template("conv_to_rows", "compute convolutions of signals as those of images with one row"),
    "transposed": Template("conv_transpose_to_conv", "compute transposed convolutions with convolutions"),
    "spectra": Template("stft_to_conv", "compute spectra of sounds with convolutions"),
    "states": Template("omit_zero_states", "leave out initial states that are zero anyway"),
    "fuse": Template("transformer_fusion", "fuse attention, GELU and normalization", {"engine": (("auto", 1),)}),
    "reshapes": Template("merge_reshapes", "join operators that only change shapes"),
    "residuals": Template("split_skip_normalization", "keep residual sums apart from normalization"),
    "half": Template(
        "float16",
        "half precision",
        {"keep_io_types": ((True, 2), (False, 3)), "op_block_list": (([], 2), (["LayerNormalization", "Softmax"], 3))},
        size=0.5,
        lossy=True,
    ),
    "mixed": Template(
        "mixed_float16",
        "half precision where it stays accurate",
        {"rtol": ((0.01, 3), (0.001, 3), (0.05, 3))},
        size=0.5,
        lossy=True,
    ),
    "dynamic": Template(
        "dynamic_quantization",
        "8-bit weights; activations are quantized at run time",
        {"op_types": (([], 2), (DENSE, 2)), "per_channel": _BOTH, "weight_type": (("QInt8", 2), ("QUInt8", 3))},
        size=0.24,
        lossy=True,
    ),
    "static": Template(
        "static_quantization",
        "8-bit weights and activations; ranges come from calibration data",
        {"activation_type": (("QUInt8", 3), ("QInt8", 3)), **_CALIBRATION, "op_types": (([], 3), (HEAVY, 3))},
        size=0.24,
        lossy=True,
    ),
    "selective": Template(
        "selective_quantization",
        "8-bit weights and activations, with the most sensitive layers in float",
        {
            "exclude_worst": ((1, 3), (2, 3), (3, 3), (4, 3), (8, 3)),
            "least_sqnr_db": ((0, 3), (25, 3), (32, 3)),
            "rank_by": (("noise_for_work", 3), ("work", 3)),
            "activation_type": (("QUInt8", 3), ("QInt8", 3)),
            "per_channel": ((True, 3), (False, 3)),
            "op_types": (([], 3), (HEAVY, 3)),
        },
        {"bias_correction": True},
        size=0.24,
        lossy=True,
    ),
    "wide": Template(
        "static_quantization",
        "8-bit weights, 16-bit activations",
        _CALIBRATION,
        {"activation_type": "QUInt16", "weight_type": "QUInt8"},
        size=0.24,
        lossy=True,
    ),
    "narrow": Template(
        "static_quantization",
        "4-bit weights, 8-bit or 16-bit activations",
        {**_CALIBRATION, "activation_type": (("QUInt8", 3), ("QUInt16", 3))},
        {"weight_type": "QInt4"},
        size=0.12,
        lossy=True,
    ),
    "weights": Template(
        "weight_only_quantization",
        "block-wise quantized weights, float arithmetic",
        {
            "bits": ((8, 2), (4, 2)),
            "block_size": ((32, 2), (64, 3)),
            "embedding_bits": ((0, 2), (8, 3), (4, 3)),
            "head_bits": ((0, 2), (8, 3)),
        },
        size=0.12,
        lossy=True,
    ),
    "calibrated": Template(
        "calibrated_weight_quantization",
        "block-wise quantized weights that fit the data, some with more bits",
        {
            "algorithm": (("awq_gptq", 3), ("awq", 3)),
            "sensitive_share": ((0.0, 3), (0.25, 3), (0.5, 3)),
            "block_size": ((32, 3), (64, 3)),
            "is_symmetric": ((True, 3), (False, 3)),
            "embedding_bits": ((0, 3), (8, 3)),
        },
        size=0.12,
        lossy=True,
    ),
    "arithmetic": Template("provider_precision", "bfloat16 arithmetic", {"precision": (("bf16", 2),)}, lossy=True),
    "graph": Template(
        "ort_graph_optimization",
        "store the graph as onnxruntime fuses it at load time",
        {"level": (("extended", 1), ("all", 3))},
    ),
    "session": Template(
        "session_tuning",
        "session options of the runtime",
        {"graph_optimization_level": (("extended", 0), ("basic", 2))},
    ),
}
CUDA_SESSION: Final = Template(
    "session_tuning",
    "session options of the provider",
    {
        "cudnn_conv_algo_search": (("EXHAUSTIVE", 0), ("HEURISTIC", 1), ("DEFAULT", 3)),
        "prefer_nhwc": ((False, 0), (True, 2)),
        "enable_cuda_graph": ((False, 0), (True, 2)),
    },
)
"""The node `session` for the CUDA provider."""


def threaded_session(threads: Sequence[int | None]) -> Template:
    """The node `session` for a target that lists several numbers of threads; None is its default."""
    session = TEMPLATES["session"]
    values: dict[str, Values] = {"intra_op_num_threads": tuple((count, 0) for count in threads)}
    for name, searched in session.search.items():
        # The runtime's default level is searched too, for models that gain by their threads alone.
        values[name] = (("all", 0), *searched)
    return replace(session, search=values)


TRIALS: Final = (12, 20, 30, 40)
MINUTES: Final = (3, 5, 8, 10)
"""Budget by level."""
