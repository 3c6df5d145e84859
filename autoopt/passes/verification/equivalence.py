"""The quick equivalence check: does the model after a pass still compute what it computed before?

Both models run once on the same synthetic feeds, on the CPU, without graph optimisation, so that only the pass
itself makes a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from autoopt.passes.base.lifecycle import describe_error
from autoopt.passes.verification.synthetic_feeds import candidates, cast_to
from autoopt.registry import Tolerance

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

    from autoopt.passes.base import Pass


Status = Literal["same", "different", "only run", "not run"]


RANDOM_OPS: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


ROUNDING: Final[Mapping[str, float]] = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 2e-4}
"""`equal` allows this much of an output's largest magnitude, and of each value, by its type."""


@dataclass(frozen=True)
class Equivalence:
    """What the check found. `same`: within the tolerance; `only run`: the new model runs, there is nothing to
    compare with; `not run`: nothing could be run, `reason` says why. `max_abs_error` is over all outputs."""

    status: Status
    tolerance: Tolerance
    reason: str = ""
    max_abs_error: float | None = None
    max_relative_error: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v not in (None, "")}


@dataclass
class Reference:
    """A model that changes are compared with; keeps its feeds and outputs for the next comparison."""

    path: Path
    model: ModelProto
    feeds: dict[str, np.ndarray] | None = None
    outputs: list[Any] | None = None
    failure: str = ""
    _tried: bool = field(default=False, repr=False)

    def run(self, narrower: ModelProto | None = None) -> None:
        """Find feeds that the model takes and keep its outputs; `failure` says why where there are none."""
        if self._tried and (
            self.outputs is None or narrower is None or cast_to(self.feeds or {}, narrower) is not None
        ):
            return
        self._tried, self.feeds, self.outputs = True, None, None
        try:
            for feeds in candidates(self.model, narrower):
                try:
                    self.outputs, self.feeds = run_once(self.path, feeds), feeds
                    return
                except Exception as error:  # the runtime's own, whatever it is
                    self.failure = self.failure or describe_error(error)
        except ValueError as error:
            self.failure = str(error)


def compare(
    before: Reference, after: Path, parsed: ModelProto | None, pass_: Pass, elsewhere: bool = False
) -> tuple[Equivalence, Reference]:
    """Compare the model at `after` with `before`; also the reference for the next pass.

    `parsed` is that model, or None where it is not in ONNX format; it then has the signature of `before`.
    `elsewhere`: the target is another execution provider, so that the CPU may lack operators of the new model.
    """
    tolerance = pass_.tolerance
    model = parsed if parsed is not None else before.model
    made = Reference(after, model)
    random = sorted({n.op_type for n in model.graph.node} & RANDOM_OPS)
    if random:
        return Equivalence("not run", tolerance, f"{random[0]} gives other values at every run"), made
    if not pass_.makes_model:
        before.run(model)
    feeds = None
    if before.feeds is not None:
        mapped = pass_.feeds(dict(before.feeds))
        feeds = cast_to(mapped, model) if mapped is not None else None
    if feeds is None:
        made.run()
        why = f"input model: {before.failure}" if before.failure else "the signature changed"
        if made.outputs is None:
            status: Status = "not run" if before.failure or elsewhere else "different"
            return Equivalence(status, tolerance, f"{why}; output model: {made.failure}"), made
        return Equivalence("only run", tolerance, why), made
    try:
        made.outputs, made.feeds, made._tried = run_once(after, feeds), feeds, True
    except Exception as error:  # the runtime refuses what the pass made
        status = "not run" if elsewhere else "different"
        return Equivalence(status, tolerance, f"the runtime refuses the new model: {describe_error(error)}"), made
    return judge(before.outputs or [], made.outputs, tolerance), made


def run_once(path: Path, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of the model at `path`, without graph optimisation, on one thread."""
    from autoopt.model.session import make_session

    session = make_session(path, {"graph_optimization_level": "disable"})
    return list(session.run(None, dict(feeds)))


def judge(before: Sequence[Any], after: Sequence[Any], tolerance: Tolerance) -> Equivalence:
    """Whether two lists of outputs agree within `tolerance`."""
    if len(before) != len(after):
        return Equivalence("different", tolerance, f"{len(after)} outputs instead of {len(before)}")
    worst, relative, reason = 0.0, 0.0, ""
    for number, (a, b) in enumerate(zip(before, after, strict=True)):
        absolute, share, bad = _one(a, b, tolerance)
        worst, relative = max(worst, absolute), max(relative, share)
        reason = reason or (f"output {number}: {bad}" if bad else "")
    return Equivalence("different" if reason else "same", tolerance, reason, worst, relative)


def _one(a: Any, b: Any, tolerance: Tolerance) -> tuple[float, float, str]:
    """Largest absolute error, the same as a share of the largest magnitude, and what is wrong (or nothing)."""
    import numpy as np

    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return 0.0, 0.0, "" if tolerance == "lossy" or repr(a) == repr(b) else "the values differ"
    if a.shape != b.shape:
        return 0.0, 0.0, f"shape {b.shape} instead of {a.shape}"
    if a.dtype != b.dtype and tolerance != "lossy":
        return 0.0, 0.0, f"type {b.dtype} instead of {a.dtype}"
    if not _is_number(a):
        wrong = int((a != b).sum())
        allowed = a.size if tolerance == "lossy" else (a.size // 100 if tolerance == "equal" else 0)
        return float(wrong > 0), wrong / max(a.size, 1), f"{wrong} of {a.size} values differ" if wrong > allowed else ""
    x, y = a.astype(np.float64), b.astype(np.float64)
    usual = np.isfinite(x)
    if not np.isfinite(y[usual]).all():
        return 0.0, 0.0, "not finite where it was"
    error = np.abs(x[usual] - y[usual])
    scale = float(np.abs(x[usual]).max(initial=0.0))
    worst = float(error.max(initial=0.0))
    share = worst / scale if scale else worst
    return worst, share, _judge_numbers(a, b, x, y, usual, error, scale, tolerance)


def _judge_numbers(a: Any, b: Any, x: Any, y: Any, usual: Any, error: Any, scale: float, tolerance: Tolerance) -> str:
    import numpy as np

    if tolerance == "lossy":
        return ""
    if not np.array_equal(x[~usual], y[~usual], equal_nan=True):
        return "infinities or NaN differ"
    if tolerance == "lossless":
        return "" if np.array_equal(a, b, equal_nan=True) else f"not the same bits (error {error.max():.3g})"
    limit = ROUNDING.get(str(a.dtype), 2e-4)
    too_far = error > limit * (scale + np.abs(x[usual])) + 1e-7
    return f"{int(too_far.sum())} of {error.size} values off by up to {error.max():.3g}" if too_far.any() else ""


def _is_number(array: Any) -> bool:
    import numpy as np

    return bool(np.issubdtype(array.dtype, np.floating)) or str(array.dtype) in ROUNDING
