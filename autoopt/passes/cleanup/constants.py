"""Constants and weights: lifted, deduplicated, folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from autoopt.passes.base import Pass
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.cleanup.elimination import IR
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.passes.onnx_tools.rewriting import apply_ir
from autoopt.space import Boolean, Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


INPUT_LIMIT = 8192


OUTPUT_LIMIT = 262144


class DeduplicateInitializers(Pass):
    """Keeps one of several equal weights."""

    target_bound = False
    tolerance = "lossless"
    libraries = IR
    aliases = ("dedup_init", "eliminate_duplicate_initializer", "remove_duplicated_initializer")

    size_limit: Annotated[
        int,
        Categorical(1024, 1_000_000, 4_294_967_296),
        "largest weight looked at",
    ] = 4_294_967_296

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import DeduplicateHashedInitializersPass

        return apply_ir(model, DeduplicateHashedInitializersPass(size_limit=self.size_limit))


class LiftConstants(Pass):
    """Turns Constant nodes into weights, which is where quantisation looks for them."""

    target_bound = False
    tolerance = "lossless"
    needs_ops = ("Constant",)
    libraries = IR
    aliases = ("extract_constant_to_initializer",)

    lift_all: Annotated[bool, Boolean(), "also constants given as numbers or lists, not as tensors"] = True
    size_limit: Annotated[int, Categorical(0, 1, 16), "smallest constant lifted, in elements"] = 0

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import LiftConstantsToInitializersPass

        return apply_ir(
            model, LiftConstantsToInitializersPass(lift_all_constants=self.lift_all, size_limit=self.size_limit)
        )


class LiftSubgraphInitializers(Pass):
    """Moves weights of the bodies of If, Loop and Scan into the main graph."""

    target_bound = False
    tolerance = "lossless"
    needs_ops = ("If", "Loop", "Scan", "SequenceMap")
    libraries = IR
    aliases = ("lift_subgraph_init", "move_subgraph_initializer")

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import LiftSubgraphInitializersToMainGraphPass

        return apply_ir(model, LiftSubgraphInitializersToMainGraphPass())


class InputsClean(Pass):
    """Takes weights out of the inputs, so that they are constant and can be folded."""

    target_bound = False
    tolerance = "lossless"
    libraries = IR
    aliases = ("remove_initializer_from_input",)

    def run(self, model: ModelProto) -> ModelProto | None:
        from onnx_ir.passes.common import RemoveInitializersFromInputsPass

        model.ir_version = max(model.ir_version, 4)  # before, weights had to be inputs
        return apply_ir(model, RemoveInitializersFromInputsPass())


class ConstantFolding(Pass):
    """Computes beforehand what depends on constants only.

    Larger limits fold more and make larger files: a folded Expand stores every element.
    """

    target_bound = False
    requires = ("shape_inference",)
    conflicts = LAST
    libraries = ("onnx", "onnx-ir", "onnxscript")
    aliases = ("fold_constants",)

    input_size_limit: Annotated[
        int, Categorical(1024, INPUT_LIMIT, 1_000_000), "largest input of a folded node, in elements"
    ] = INPUT_LIMIT
    output_size_limit: Annotated[
        int, Categorical(65536, OUTPUT_LIMIT, 10_000_000), "largest output of a folded node, in elements"
    ] = OUTPUT_LIMIT

    def run(self, model: ModelProto) -> ModelProto | None:
        return folded(model, self.input_size_limit, self.output_size_limit)


def folded(model: ModelProto, input_size_limit: int = INPUT_LIMIT, output_size_limit: int = OUTPUT_LIMIT) -> ModelProto:
    """`model` with constants folded by onnxscript, kept as weights, and without what they made unused."""
    import onnx_ir
    from onnx_ir.passes.common import LiftConstantsToInitializersPass, RemoveUnusedNodesPass
    from onnxscript.optimizer import fold_constants

    with quiet():
        form = onnx_ir.from_proto(model)
        before = _constants(form)
        fold_constants(form, input_size_limit=input_size_limit, output_size_limit=output_size_limit)
        RemoveUnusedNodesPass()(form)
        if _constants(form) > before:
            LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(form)
        made: ModelProto = onnx_ir.to_proto(form)
    return made


def _constants(form: object) -> int:
    return sum(node.op_type == "Constant" for node in form.graph)  # type: ignore[attr-defined]  # an onnx_ir.Model
