"""float16 where the outputs stay accurate enough, float32 elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from autoopt.model import io
from autoopt.model.lazy_imports import np
from autoopt.model.session import make_plain_session
from autoopt.model.tensors import bodies, weight_bytes
from autoopt.passes.base import Pass
from autoopt.passes.base.contract import FLOAT_CONVERSIONS, QUANTIZATIONS, RUNTIME_BOUND
from autoopt.passes.onnx_tools.graphs import name_nodes, walk_nodes
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.onnx_tools.opsets import inline_functions
from autoopt.passes.precision.conversion import has_float32, to_float16
from autoopt.passes.quantize.calibration import CalibrationReader
from autoopt.registry import Minimum
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto

CONVERTED_BYTES: Final = 24 << 30
"""All attempts together convert no more than this: a model of 2.4 GB gets ten, which take half a minute each."""


class MixedFloat16(Pass):
    """Uses float16 wherever the outputs stay within a tolerance, and float32 elsewhere.

    Searches by running the model many times: it converts segments of nodes, and halves a segment that makes the
    outputs on the calibration items too inaccurate. Nodes in branches and loops count like others.
    """

    tolerance = "lossy"
    needs_data = True
    requires = ("ir_upgrade", "shape_inference")
    conflicts = (*RUNTIME_BOUND, *FLOAT_CONVERSIONS, *QUANTIZATIONS)
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
        for outputs, expected_outputs in zip(actual, expected, strict=True):
            for output, expected_output in zip(outputs, expected_outputs, strict=True):
                if not self._is_close(output, expected_output):
                    return False
        return True

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
