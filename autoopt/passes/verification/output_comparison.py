"""Compare the outputs of a model before and after a pass."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from autoopt.json_codec import to_json
from autoopt.model.lazy_imports import np
from autoopt.passes.verification.rounding import RUNS, NoiseSpread, is_float, output_arrays
from autoopt.registry import Tolerance

Status = Literal["same", "different", "only run", "not run"]
Spreads: TypeAlias = Callable[[int], "Sequence[NoiseSpread] | None"]
"""Measures by a number of runs how far rounding moves each output of the model before the pass; None if that is
unknown."""

ROUNDINGS: Final = 4
"""Difference in units in the last place that needs no further explanation."""
SPREADS: Final = 2.0
"""Allowed error of an element as a multiple of its own spread."""
LARGE_SPREADS: Final = 0.5
"""The same where the spread is so large that it would hide real changes: noise is larger than most roundings are."""
HOPELESS: Final = 100
"""Error as a multiple of the allowed one that more runs with noise will not explain."""
SHARE_OF_TYPICAL: Final = 0.25
"""Allowed error of an element as a share of its output's median spread: noise may spare an element by chance."""
UNKNOWN_ROUNDING: Final[Mapping[str, float]] = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 2e-4}
"""Allowed error where the effect of rounding is unknown, by element type: this share of the output's largest magnitude
plus this share of the value itself."""
UNIT_ERROR: Final = 1e-6
"""Absolute error that is allowed where the effect of rounding is unknown, because functions that saturate at 1 are
computed to that precision."""
VALUES_PER_MISMATCH: Final = 100
"""One in this many integers or texts may differ where the effect of rounding is unknown: it can move an argmax."""


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


@dataclass(frozen=True)
class _Difference:
    """The difference of one output."""

    problem: str = ""
    max_abs_error: float = 0.0
    max_relative_error: float = 0.0


def compare_outputs(
    before: Sequence[object],
    after: Sequence[object],
    tolerance: Tolerance,
    spreads: Spreads | None = None,
    deadline: float = math.inf,
    sizes_vary: bool = False,
) -> Equivalence:
    """Compare two lists of outputs, one by one.

    With the tolerance `equal`, an element may differ by a few units in the last place, or by as much as rounding moves
    it in the model before the pass. Integers and texts may differ where rounding changes them. `spreads` measures the
    effect of rounding, only where it is needed: without it, and after the `deadline` (of `time.monotonic`), fixed
    shares of the output's magnitude are allowed. `sizes_vary`: sizes of outputs depend on values, as the number of
    boxes does.
    """
    if len(before) != len(after):
        return Equivalence("different", tolerance, f"{len(after)} outputs instead of {len(before)}")
    expected, actual = output_arrays(before), output_arrays(after)
    if len(expected) != len(actual):
        return Equivalence("different", tolerance, "sequences of another length")
    worst, relative, reason = 0.0, 0.0, ""
    for number, (old, new) in enumerate(zip(expected, actual, strict=True)):
        difference = _compare_output(old, new, tolerance, _OutputSpread(number, spreads, deadline, sizes_vary))
        worst = max(worst, difference.max_abs_error)
        relative = max(relative, difference.max_relative_error)
        if difference.problem and not reason:
            reason = f"output {number}: {difference.problem}"
    if reason:
        return Equivalence("different", tolerance, reason, worst, relative)
    return Equivalence("same", tolerance, "", worst, relative)


@dataclass(frozen=True)
class _OutputSpread:
    """Measures the spread of one output, when it is needed."""

    number: int
    measure: Spreads | None
    deadline: float
    sizes_vary: bool

    def estimates(self) -> Iterator[NoiseSpread | None]:
        """Yield the spread by more and more runs; None where it is unknown, and once when the time is up."""
        late = False
        for runs in RUNS:
            if not late and time.monotonic() > self.deadline:
                late = True
                yield None
            spreads = self.measure(runs) if self.measure is not None else None
            if spreads is None:
                yield None
                return
            yield spreads[self.number]


def _compare_output(
    expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance, output_spread: _OutputSpread
) -> _Difference:
    if expected.shape != actual.shape:
        if tolerance == "equal" and _changes_shape(output_spread.estimates()):
            return _Difference()
        if tolerance == "lossy" and output_spread.sizes_vary and expected.ndim == actual.ndim:
            return _Difference()  # the quality metrics judge it
        return _Difference(f"shape {actual.shape} instead of {expected.shape}")
    if expected.dtype != actual.dtype and tolerance != "lossy":
        return _Difference(f"type {actual.dtype} instead of {expected.dtype}")
    if is_float(expected):
        return _compare_floats(expected, actual, tolerance, output_spread)
    return _compare_categories(expected, actual, tolerance, output_spread)


def _compare_categories(
    expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance, output_spread: _OutputSpread
) -> _Difference:
    """Compare integers, booleans or texts, value by value."""
    differs = np.asarray(expected != actual)
    wrong = int(differs.sum())
    share = wrong / max(expected.size, 1)
    if not wrong or tolerance == "lossy":
        return _Difference("", float(wrong > 0), share)
    allowed = 0
    if tolerance == "equal":
        spreads = list(output_spread.estimates())
        if _changes_shape(spreads):
            return _Difference("", 1.0, share)
        allowed = max(_unstable(spread, expected.size) for spread in spreads)
    problem = ""
    if wrong > allowed:
        problem = f"{wrong} of {expected.size} values differ; rounding explains {allowed}"
    return _Difference(problem, float(wrong > 0), share)


def _changes_shape(spreads: Iterable[NoiseSpread | None]) -> bool:
    """True if rounding alone changes the shape of an output, such as the number of boxes that are found.

    One box more or less moves all that come after it, so such an output cannot be compared value by value.
    """
    return any(spread is not None and spread.deviation is None for spread in spreads)


def _unstable(spread: NoiseSpread | None, size: int) -> int:
    """Number of values that rounding may change: noise and a pass change different ones of those at a boundary."""
    if spread is None or spread.deviation is None:
        return size // VALUES_PER_MISMATCH
    return int(spread.deviation.sum())


def _compare_floats(
    expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance, output_spread: _OutputSpread
) -> _Difference:
    x, y = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(x)
    if not np.isfinite(y[finite]).all():
        return _Difference("infinite or NaN where it was finite")
    error = np.zeros(x.shape)
    error[finite] = np.abs(x[finite] - y[finite])
    scale = float(np.abs(x[finite]).max(initial=0.0))
    worst = float(error.max(initial=0.0))
    share = worst / scale if scale else worst
    problem = ""
    if tolerance != "lossy":
        if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            problem = "infinities or NaN differ"
        elif tolerance == "lossless" and not np.array_equal(expected, actual, equal_nan=True):
            problem = f"not the same bits (error {worst:.3g})"
        elif tolerance == "equal":
            problem = _beyond_rounding(expected, error, scale, output_spread)
    return _Difference(problem, worst, share)


def _beyond_rounding(expected: np.ndarray, error: np.ndarray, scale: float, output_spread: _OutputSpread) -> str:
    """The reason why rounding does not explain the error of an output; "" if it does."""
    magnitude = np.nan_to_num(np.abs(expected.astype(np.float64)), nan=0.0, posinf=0.0)
    few_roundings = ROUNDINGS * _epsilon(expected) * magnitude + _smallest(expected)
    if (error <= few_roundings).all():
        return ""
    problem = ""
    for spread in output_spread.estimates():
        if _changes_shape([spread]):
            return ""
        limit = _limit(expected, spread, scale) + few_roundings
        outside = error > limit
        jumps = spread is not None and spread.jumps
        if not outside.any() or (jumps and _as_often(error, limit)):
            return ""
        worst = np.unravel_index(np.argmax(np.where(outside, error - limit, -np.inf)), error.shape)
        problem = (
            f"{int(outside.sum())} of {error.size} values off by up to {float(error.max()):.3g}; "
            f"rounding explains {float(limit[worst]):.3g}"
        )
        if not jumps and error[worst] > HOPELESS * limit[worst]:
            return problem
    return problem


def _limit(expected: np.ndarray, spread: NoiseSpread | None, scale: float) -> np.ndarray:
    """Largest error of each element that rounding explains."""
    magnitude = np.nan_to_num(np.abs(expected.astype(np.float64)), nan=0.0, posinf=0.0)
    fixed = UNKNOWN_ROUNDING.get(str(expected.dtype), 2e-4) * (scale + magnitude)
    if spread is None or spread.deviation is None:
        return fixed + UNIT_ERROR
    limit = SPREADS * spread.deviation
    if not spread.jumps:
        limit = np.minimum(limit, np.maximum(fixed, LARGE_SPREADS * spread.deviation))
    finite = spread.deviation[np.isfinite(spread.deviation)]
    if finite.size:
        limit = limit + SHARE_OF_TYPICAL * float(np.median(finite))
    return limit


def _as_often(error: np.ndarray, limit: np.ndarray) -> bool:
    """True if errors of each size are no more frequent than rounding makes them, wherever they are.

    A value that jumps does so at another element in each run.
    """
    return bool((np.sort(error, axis=None) <= np.sort(limit, axis=None)).all())


def _epsilon(array: np.ndarray) -> float:
    """The unit in the last place of 1 in the type of an array."""
    if str(array.dtype) == "bfloat16":
        return 2.0**-7
    if not np.issubdtype(array.dtype, np.floating):
        return 0.125  # float8 with 3 bits of mantissa; those with 2 are as coarse as their spread
    return float(np.finfo(array.dtype).eps)


def _smallest(array: np.ndarray) -> float:
    """The magnitude below which a runtime may round a value of this type to 0."""
    if not np.issubdtype(array.dtype, np.floating):
        return 2.0**-126
    if array.dtype == np.float16:
        return ROUNDINGS * float(np.finfo(array.dtype).smallest_subnormal)
    return float(np.finfo(array.dtype).tiny)
