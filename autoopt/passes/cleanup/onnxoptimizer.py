"""onnxoptimizer's eliminations and fusions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from autoopt.passes.base import Pass, Refused
from autoopt.passes.base.conflicts import RUNTIME_BOUND
from autoopt.passes.cleanup.constants import fold_constants
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.space import Boolean, Categorical

if TYPE_CHECKING:
    from onnx import ModelProto

SET_PREFIXES: Final = {"eliminate": "eliminate_", "fuse": "fuse_"}
"""Sets of onnxoptimizer's passes and the prefix of their names."""
UNSAFE_PASSES: Final = ("fuse_qkv",)
"""Passes of onnxoptimizer that abort the process (a failed C++ assertion)."""


class OnnxOptimizer(Pass):
    """Runs onnxoptimizer's eliminations and fusions, then folds constants, which some of the fusions leave behind."""

    target_bound = False
    requires = ("shape_inference",)
    conflicts = RUNTIME_BOUND
    libraries = ("onnx", "onnxoptimizer", "onnxscript")

    passes: Annotated[
        list[str],
        Categorical([], ["eliminate"], ["fuse"]),
        "names of its passes, or the sets `eliminate` and `fuse`; empty: all safe ones",
    ] = []
    fixed_point: Annotated[bool, Boolean(), "repeat until nothing changes"] = True

    def run(self, model: ModelProto) -> ModelProto | None:
        import onnxoptimizer

        defaults, available = onnxoptimizer.get_fuse_and_elimination_passes(), onnxoptimizer.get_available_passes()
        names = expand_names(self.passes, defaults, available)
        with quiet():
            optimized: ModelProto = onnxoptimizer.optimize(model, names, self.fixed_point)
        if "fuse_bn_into_conv" in names:
            return fold_constants(optimized)
        return optimized


def expand_names(names: list[str], defaults: list[str], available: list[str]) -> list[str]:
    """Expand sets into names of onnxoptimizer's passes; no names give all safe `defaults`.

    Raises:
        Refused: a name is unknown or unsafe.
    """
    safe = [name for name in defaults if name not in UNSAFE_PASSES]
    expanded: list[str] = []
    for name in names:
        if name in UNSAFE_PASSES:
            raise Refused(f"onnxoptimizer's {name!r} aborts the whole process on some models")
        if name in SET_PREFIXES:
            expanded += [candidate for candidate in safe if candidate.startswith(SET_PREFIXES[name])]
        elif name in available:
            expanded.append(name)
        else:
            raise Refused(f"onnxoptimizer has no pass {name!r}")
    return list(dict.fromkeys(expanded)) or safe
