"""float16 where the outputs stay accurate enough, float32 elsewhere."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from autoopt.passes.base import Pass, PassContext, Refused
from autoopt.passes.base.conflicts import FLOATS, LAST, QUANTIZATIONS
from autoopt.passes.onnx_tools.graphs import has_subgraphs, name_nodes
from autoopt.passes.precision.conversion import has_float32, to_float16
from autoopt.space import Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


class MixedFloat16(Pass):
    """float16 wherever the outputs stay within a tolerance, float32 elsewhere; found by running the model many times.

    Halves the set of nodes in float32 as long as the outputs on the calibration items allow it.
    """

    family: ClassVar[str] = "precision"
    tolerance = "lossy"
    needs_data = True
    requires = ("ir_upgrade", "shape_inference")
    conflicts = (*LAST, *FLOATS, *QUANTIZATIONS)
    libraries = ("onnx", "onnxruntime")
    aliases = ("mixed_fp16", "float_to_mixed", "OrtMixedPrecision")

    rtol: Annotated[
        float, Categorical(1e-3, 1e-2, 5e-2), "error allowed in an output, as a share of its largest magnitude"
    ] = 1e-2
    keep_io_types: Annotated[bool, "leave the model's inputs and outputs float32"] = True
    samples: Annotated[int, "calibration items that are compared"] = 4
    attempts: Annotated[int, "at most so many conversions are tried"] = 64

    def run(self, model: ModelProto) -> ModelProto | None:
        if not has_float32(model.graph):
            return None
        if has_subgraphs(model):
            raise Refused("the model has branches or loops, which mixed precision cannot take; use float16")
        name_nodes(model)
        feeds = first_feeds(self.context, self.samples)
        expected = [_outputs(model, feed) for feed in feeds]
        best: ModelProto | None = None
        kept = {node.name for node in model.graph.node}
        segments = [[node.name for node in model.graph.node]]
        for _ in range(self.attempts):
            if not segments:
                break
            segment = segments.pop(0)
            made = self._converted(model, sorted(kept.difference(segment)))
            if made is not None and self._close(made, feeds, expected):
                best, kept = made, kept.difference(segment)
            elif len(segment) > 1:
                segments += [segment[: len(segment) // 2], segment[len(segment) // 2 :]]
        return best

    def _converted(self, model: ModelProto, kept: list[str]) -> ModelProto | None:
        copy = type(model)()
        copy.CopyFrom(model)
        return to_float16(copy, "ort", [], kept, keep_io_types=self.keep_io_types)

    def _close(self, made: ModelProto, feeds: list[dict[str, Any]], expected: list[list[Any]]) -> bool:
        """Whether the converted model runs and its float outputs are within the tolerance."""
        import numpy as np

        try:
            found = [_outputs(made, feed) for feed in feeds]
        except Exception:  # the runtime refuses what the converter made
            return False
        for ours, theirs in zip(found, expected, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                if isinstance(b, np.ndarray) and np.issubdtype(b.dtype, np.floating):
                    limit = self.rtol * float(np.abs(b).max(initial=0.0)) + 1e-7
                    if not np.abs(a.astype(np.float64) - b).max(initial=0.0) <= limit:
                        return False
                elif repr(a) != repr(b):
                    return False
        return True


def _outputs(model: ModelProto, feed: dict[str, Any]) -> list[Any]:
    """The outputs on `feed`, its floats brought to the types of the model's inputs."""
    import numpy as np
    import onnxruntime as ort

    from autoopt.model.session import make_options

    options = make_options({"graph_optimization_level": "disable"})
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    half = {value.name for value in session.get_inputs() if value.type == "tensor(float16)"}
    return list(session.run(None, {k: v.astype(np.float16) if k in half else v for k, v in feed.items()}))


def first_feeds(context: PassContext, number: int) -> list[dict[str, Any]]:
    """The first items of the calibration data.

    Raises:
        Refused: there are none.
    """
    feeds = list(islice(context.calibration(), number)) if context.calibration is not None else []
    if not feeds:
        raise Refused("needs calibration data, and the run has none (data: calibration)")
    return feeds
