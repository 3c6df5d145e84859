"""Conversion to float16 or bfloat16: of a whole model, or of the parts in which outputs stay accurate enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Final

from autoopt.model import io
from autoopt.model.lazy_imports import np
from autoopt.model.session import make_plain_session
from autoopt.model.tensors import bodies, weight_bytes
from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.contract import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import has_subgraphs, name_nodes, op_counts, walk_nodes
from autoopt.passes.onnx_tools.large_models import refuse_invalid
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import at_least_opset, inline_functions
from autoopt.passes.precision.conversion import Converter, has_float32, prepare_for_conversion, to_float16
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.registry import Minimum
from autoopt.space import Categorical

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

CONVERTED_BYTES: Final = 24 << 30
"""All attempts of a mixture together convert no more than this: a model of 2.4 GB gets ten, which take half a minute
each."""


class _HalfFloats(Pass):
    """The common part of the conversions to 16-bit floats."""

    tolerance = "lossy"
    requires = ("ir_upgrade", "shape_inference")
    conflicts = (*RUNTIME_BOUND, *FLOAT_CONVERSIONS, *QUANTIZATIONS)


class Float16(_HalfFloats):
    """Converts float32 weights and computation to float16.

    Faster on GPUs; the CPU provider mostly computes float16 through casts. Operators in `op_block_list` stay in
    float32.
    """

    version = 3
    libraries = ("onnx", "onnxconverter-common", "onnxruntime")
    aliases = ("fp16",)

    impl: Annotated[Converter, Categorical("occ", "ort"), "converter: onnxconverter-common or onnxruntime's"] = "occ"
    keep_io_types: Annotated[bool, "keep the model's inputs and outputs in float32"] = True
    op_block_list: Annotated[
        list[str],
        Categorical([], ["LayerNormalization", "Softmax"], ["ReduceMean", "Pow"]),
        "operator types to keep in float32, besides the converter's own list",
    ] = []
    node_block_list: Annotated[list[str], "nodes to keep in float32, by name"] = []
    min_positive_val: Annotated[float | None, "smaller values become this one; null: the converter's default"] = None
    max_finite_val: Annotated[float | None, "larger values become this one; null: the converter's default"] = None
    force_fp16_initializers: Annotated[bool, "also convert weights of operators kept in float32; only `ort`"] = False

    def run(self, model: ModelProto) -> ModelProto | None:
        model = inline_functions(model)
        if not has_float32(model):
            return None
        if op_counts(model)["DequantizeLinear"]:
            raise Refused("the model is quantized; dequantize turns it into a float model")
        options: dict[str, object] = {"keep_io_types": self.keep_io_types}
        if self.min_positive_val is not None:
            options["min_positive_val"] = self.min_positive_val
        if self.max_finite_val is not None:
            options["max_finite_val"] = self.max_finite_val
        if self.impl == "ort":
            options["force_fp16_initializers"] = self.force_fp16_initializers
        converted = to_float16(model, self.impl, list(self.op_block_list), list(self.node_block_list), **options)
        if converted is not None and has_subgraphs(converted):
            refuse_invalid(converted, "the converter cannot convert this model's branches")
        return converted


class BFloat16(_HalfFloats):
    """Converts float32 weights and computation to bfloat16: the range of float32 with 8 bits of precision.

    For GPUs with bfloat16; the CPU provider has few kernels for it. Refuses models with branches or with operators
    that ONNX does not define for bfloat16.
    """

    accelerators = ("CUDAExecutionProvider", "TensorrtExecutionProvider")
    refuses_ops = ("If", "Loop", "Scan", "SequenceMap")
    libraries = ("onnx", "onnxsim")
    aliases = ("bf16",)

    keep_io_types: Annotated[bool, "keep the model's inputs and outputs in float32"] = True

    def run(self, model: ModelProto) -> ModelProto | None:
        model = inline_functions(model)
        if not has_float32(model):
            return None
        if has_subgraphs(model):
            raise Refused("the model has branches or loops, which the converter leaves in float32")
        import onnxsim

        prepare_for_conversion(model)
        prepared = at_least_opset(model, 22)  # many operators take bfloat16 from opset 22 on
        del prepared.graph.value_info[:]
        with quiet():
            converted: ModelProto = onnxsim.quantize_bf16(prepared, keep_io_types=self.keep_io_types)
        refuse_invalid(converted, "parts of the model cannot be bfloat16")
        return converted


class MixedFloat16(_HalfFloats):
    """Uses float16 wherever the outputs stay within a tolerance, and float32 elsewhere.

    Searches by running the model many times: it converts segments of nodes, and halves a segment that makes the
    outputs on the calibration items too inaccurate. Nodes in branches and loops count like others.
    """

    needs_data = True
    libraries = ("onnx", "onnxruntime")
    aliases = ("mixed_fp16",)
    version = 4

    rtol: Annotated[
        float,
        Minimum(0),
        Categorical(1e-3, 1e-2, 5e-2),
        "error allowed in an output, as a share of its largest magnitude",
    ] = 1e-2
    keep_io_types: Annotated[bool, "keep the model's inputs and outputs in float32"] = True
    samples: Annotated[int, Minimum(1), "number of calibration items to compare"] = 4
    attempts: Annotated[int, Minimum(1), "maximum number of conversions to try; of large models fewer"] = 64

    def run(self, model: ModelProto) -> ModelProto | None:
        model = inline_functions(model)
        if not has_float32(model):
            return None
        name_nodes(model)
        # Nodes with bodies pass on what the nodes in these make, and have no type of their own.
        names = [node.name for node in walk_nodes(model.graph) if not any(bodies(node))]
        source = io.save(model, self.context.work / "source")
        feeds = list(CalibrationReader(self.context, self.samples))
        expected = self._outputs_of(source, feeds)
        best: ModelProto | None = None
        unconverted: ModelProto | None = model  # a conversion changes its model; there is often no second one
        in_float32 = set(names)
        segments = [names]
        attempts = min(self.attempts, max(1, CONVERTED_BYTES // max(1, weight_bytes(model))))
        while segments and attempts > 0:
            attempts -= 1
            segment = segments.pop(0)
            remaining = in_float32.difference(segment)
            candidate = unconverted or io.load(source)
            unconverted = None
            converted = to_float16(candidate, "ort", [], sorted(remaining), keep_io_types=self.keep_io_types)
            if converted is not None and self._is_accurate(converted, feeds, expected):
                best, in_float32 = converted, remaining
            elif len(segment) > 1:
                middle = len(segment) // 2
                segments += [segment[:middle], segment[middle:]]
        return best

    def _is_accurate(
        self, model: ModelProto, feeds: list[dict[str, np.ndarray]], expected: list[list[np.ndarray]]
    ) -> bool:
        """Tell if the converted model runs and its outputs are within the tolerance."""
        try:
            actual = self._outputs_of(io.save(model, self.context.work / "compared"), feeds)
        except Exception:  # the runtime rejects what the converter made
            return False
        pairs = [pair for items in zip(actual, expected, strict=True) for pair in zip(*items, strict=True)]
        return all(self._is_close(output, expected_output) for output, expected_output in pairs)

    def _is_close(self, actual: np.ndarray, expected: np.ndarray) -> bool:
        if not isinstance(expected, np.ndarray) or not np.issubdtype(expected.dtype, np.floating):
            return repr(actual) == repr(expected)
        # The constant is for outputs that are all zeros, where a share of the magnitude allows no error.
        limit = self.rtol * float(np.abs(expected).max(initial=0.0)) + 1e-7
        error = float(np.abs(actual.astype(np.float64) - expected).max(initial=0.0))
        return error <= limit  # False if the error is NaN

    def _outputs_of(self, path: Path, feeds: Iterable[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
        """A model's outputs for each feed, whose floats are cast to the types of the model's inputs."""
        with quiet():
            session = make_plain_session(path)
        outputs = []
        for feed in feeds:
            feed = dict(feed)
            for value in session.get_inputs():
                if value.type == "tensor(float16)":
                    feed[value.name] = feed[value.name].astype(np.float16)
            outputs.append(list(session.run(None, feed)))
        return outputs
