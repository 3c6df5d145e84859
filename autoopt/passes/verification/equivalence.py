"""The quick equivalence check: does the model after a pass compute what it computed before?

Both models run once on the same synthetic inputs, on the CPU and without graph optimization, so that only the pass
itself makes a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from autoopt.json_codec import to_json
from autoopt.passes.base.lifecycle import describe_error
from autoopt.passes.verification.synthetic_feeds import cast_feeds, synthetic_feeds
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
"""Error that the tolerance `equal` allows by element type: this share of the output's largest magnitude plus this
share of the value itself."""
VALUES_PER_MISMATCH: Final = 100
"""The tolerance `equal` allows one in this many integers or texts to differ, because rounding can move an argmax."""


@dataclass(frozen=True)
class Equivalence:
    """The result of one comparison."""

    status: Status
    """`same`: within the tolerance. `only run`: the new model runs, but there is nothing to compare it with.
    `not run`: nothing could be run."""
    tolerance: Tolerance
    reason: str = ""
    """Explanation of every status but `same`."""
    max_abs_error: float | None = None
    """Largest absolute error over all outputs."""
    max_relative_error: float | None = None
    """Largest error over all outputs, as a share of the output's largest magnitude."""

    def to_json(self) -> dict[str, object]:
        return {name: value for name, value in to_json(self).items() if value not in (None, "")}


@dataclass
class Reference:
    """A model to compare with. Keeps its inputs and outputs for the next comparison."""

    path: Path
    model: ModelProto
    feeds: dict[str, np.ndarray] | None = None
    outputs: list[np.ndarray] | None = None
    """Arrays, except for outputs of sequence or map type."""
    failure: str = ""
    """Reason why there are no outputs."""
    _attempted: bool = field(default=False, repr=False)

    def run(self, narrower: ModelProto | None = None) -> None:
        """Find inputs that the model accepts, run it, and keep its outputs or the reason of the failure.

        Args:
            narrower: a version of the model with fewer open dimensions; the inputs fit it as well.
        """
        if self._attempted and not self._needs_narrower_feeds(narrower):
            return
        self._attempted, self.feeds, self.outputs = True, None, None
        try:
            for feeds in synthetic_feeds(self.model, narrower):
                try:
                    self.outputs, self.feeds = run_once(self.path, feeds), feeds
                    return
                except Exception as error:  # any exception type of the runtime
                    self.failure = self.failure or describe_error(error)
        except ValueError as error:  # no synthetic inputs for this model
            self.failure = str(error)

    def _needs_narrower_feeds(self, narrower: ModelProto | None) -> bool:
        if self.outputs is None or narrower is None:
            return False
        return cast_feeds(self.feeds or {}, narrower) is None

    def record(self, feeds: dict[str, np.ndarray]) -> None:
        """Run the model on `feeds` and keep the outputs. Raises what the runtime raises."""
        self.outputs = run_once(self.path, feeds)
        self.feeds, self._attempted = feeds, True


def compare(
    before: Reference, after: Path, parsed: ModelProto | None, pass_: Pass, elsewhere: bool = False
) -> tuple[Equivalence, Reference]:
    """Compare the model at `after` with `before`.

    Args:
        before: the input model of the pass.
        after: the new model as a file.
        parsed: the new model; None in ORT format, which keeps the signature of `before`.
        pass_: the pass that made it.
        elsewhere: the target uses another execution provider, so the CPU may lack operators of the new model.

    Returns:
        The result, and the reference that the next pass is compared with.
    """
    tolerance = pass_.tolerance
    model = before.model
    if parsed is not None:
        model = parsed
    reference = Reference(after, model)
    random = sorted(RANDOM_OPS.intersection(node.op_type for node in model.graph.node))
    if random:
        return Equivalence("not run", tolerance, f"{random[0]} gives other values at every run"), reference
    if not pass_.makes_model:
        before.run(model)
    # The CPU not being the target, a model that it cannot run may still be right.
    unrunnable: Status = "different"
    if elsewhere:
        unrunnable = "not run"
    feeds = _map_feeds(before, model, pass_)
    if feeds is None:
        return _run_alone(before, reference, tolerance, unrunnable), reference
    try:
        reference.record(feeds)
    except Exception as error:  # the runtime rejects the new model
        reason = f"the runtime rejects the new model: {describe_error(error)}"
        return Equivalence(unrunnable, tolerance, reason), reference
    return compare_outputs(before.outputs or [], reference.outputs or [], tolerance), reference


def _run_alone(before: Reference, reference: Reference, tolerance: Tolerance, unrunnable: Status) -> Equivalence:
    """Run the new model where no inputs of the old one fit it; `unrunnable` is the status if that fails."""
    reference.run()
    reason = "the signature changed"
    if before.failure:
        reason, unrunnable = f"input model: {before.failure}", "not run"
    if reference.outputs is None:
        return Equivalence(unrunnable, tolerance, f"{reason}; output model: {reference.failure}")
    return Equivalence("only run", tolerance, reason)


def _map_feeds(before: Reference, model: ModelProto, pass_: Pass) -> dict[str, np.ndarray] | None:
    """Inputs of `before` in the names and types of `model`; None if there are none."""
    if before.feeds is None:
        return None
    feeds = pass_.feeds(dict(before.feeds))
    if feeds is None:
        return None
    return cast_feeds(feeds, model)


def run_once(path: Path, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run the model at `path` once, without graph optimization and on one thread."""
    from autoopt.model.session import make_session

    session = make_session(path, {"graph_optimization_level": "disable"})
    return list(session.run(None, dict(feeds)))


@dataclass(frozen=True)
class _Difference:
    """The difference of one output."""

    problem: str = ""
    max_abs_error: float = 0.0
    max_relative_error: float = 0.0


def compare_outputs(before: Sequence[object], after: Sequence[object], tolerance: Tolerance) -> Equivalence:
    """Compare two lists of outputs, one by one."""
    if len(before) != len(after):
        return Equivalence("different", tolerance, f"{len(after)} outputs instead of {len(before)}")
    worst, relative, reason = 0.0, 0.0, ""
    for number, (expected, actual) in enumerate(zip(before, after, strict=True)):
        difference = _compare_output(expected, actual, tolerance)
        worst = max(worst, difference.max_abs_error)
        relative = max(relative, difference.max_relative_error)
        if difference.problem and not reason:
            reason = f"output {number}: {difference.problem}"
    if reason:
        return Equivalence("different", tolerance, reason, worst, relative)
    return Equivalence("same", tolerance, "", worst, relative)


def _compare_output(expected: object, actual: object, tolerance: Tolerance) -> _Difference:
    import numpy as np

    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        if tolerance == "lossy" or repr(expected) == repr(actual):
            return _Difference()
        return _Difference("the values differ")
    if expected.shape != actual.shape:
        return _Difference(f"shape {actual.shape} instead of {expected.shape}")
    if expected.dtype != actual.dtype and tolerance != "lossy":
        return _Difference(f"type {actual.dtype} instead of {expected.dtype}")
    if _is_float(expected):
        return _compare_floats(expected, actual, tolerance)
    return _compare_categories(expected, actual, tolerance)


def _compare_categories(expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> _Difference:
    """Compare integers, booleans or texts, value by value."""
    wrong = int((expected != actual).sum())
    allowed = {"lossless": 0, "equal": expected.size // VALUES_PER_MISMATCH, "lossy": expected.size}[tolerance]
    problem = ""
    if wrong > allowed:
        problem = f"{wrong} of {expected.size} values differ"
    return _Difference(problem, float(wrong > 0), wrong / max(expected.size, 1))


def _compare_floats(expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> _Difference:
    import numpy as np

    x, y = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(x)
    if not np.isfinite(y[finite]).all():
        return _Difference("infinite or NaN where it was finite")
    error = np.abs(x[finite] - y[finite])
    scale = float(np.abs(x[finite]).max(initial=0.0))
    worst = float(error.max(initial=0.0))
    share = worst
    if scale:
        share = worst / scale
    problem = ""
    if tolerance != "lossy":
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            problem = "infinities or NaN differ"
        elif tolerance == "lossless" and not np.array_equal(expected, actual, equal_nan=True):
            problem = f"not the same bits (error {worst:.3g})"
        elif tolerance == "equal":
            limit = ROUNDING.get(str(expected.dtype), 2e-4)
            outside = int((error > limit * (scale + np.abs(x[finite])) + 1e-7).sum())
            if outside:
                problem = f"{outside} of {error.size} values off by up to {worst:.3g}"
    return _Difference(problem, worst, share)


def _is_float(array: np.ndarray) -> bool:
    import numpy as np

    # numpy does not count bfloat16 and the like among its floating types
    return bool(np.issubdtype(array.dtype, np.floating)) or str(array.dtype) in ROUNDING
