"""onnxoptimizer's eliminations and fusions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import LAST
from autoopt.passes.cleanup.constants import folded
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.space import Boolean, Categorical

if TYPE_CHECKING:
    from onnx import ModelProto


OPTIMIZER_SETS: Final = {
    "eliminate": "eliminate_",
    "fuse": "fuse_",
}


UNSAFE_OPTIMIZERS: Final = ("fuse_qkv",)
"""Of onnxoptimizer's: they stop the process (a failed C++ assertion)."""


class OnnxOptimizer(Pass):
    """Runs onnxoptimizer's eliminations and fusions; constants are folded afterwards, as some fusions need it."""

    target_bound = False
    family = "cleanup"
    requires = ("shape_inference",)
    conflicts = LAST
    libraries = ("onnx", "onnxoptimizer", "onnxscript")

    passes: Annotated[
        list[str], Categorical([], ["eliminate"], ["fuse"]), "its passes, or `eliminate`, `fuse`; empty: all safe ones"
    ] = []
    fixed_point: Annotated[bool, Boolean(), "repeat until nothing changes"] = True

    def run(self, model: ModelProto) -> ModelProto | None:
        import onnxoptimizer

        wanted = _chosen(
            self.passes, onnxoptimizer.get_fuse_and_elimination_passes(), onnxoptimizer.get_available_passes()
        )
        with quiet():
            made: ModelProto = onnxoptimizer.optimize(model, wanted, self.fixed_point)
        return folded(made) if "fuse_bn_into_conv" in wanted else made


def _chosen(asked: list[str], usual: list[str], available: list[str]) -> list[str]:
    """The passes behind names and sets.

    Raises:
        Refused: an unknown or unsafe one.
    """
    safe = [name for name in usual if name not in UNSAFE_OPTIMIZERS]
    wanted: list[str] = []
    for name in asked:
        if name in UNSAFE_OPTIMIZERS:
            raise Refused(f"onnxoptimizer's {name!r} stops the whole process on some models")
        if name not in available and name not in OPTIMIZER_SETS:
            raise Refused(f"onnxoptimizer has no pass {name!r}")
        wanted.extend([n for n in safe if n.startswith(OPTIMIZER_SETS[name])] if name in OPTIMIZER_SETS else [name])
    return list(dict.fromkeys(wanted)) or safe
