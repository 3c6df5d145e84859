"""Compare two models whose outputs are random: by the mean and the spread of many draws on the same inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import np
from autoopt.passes.verification.output_arrays import is_float, output_arrays

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

GROUPS: Final = 8
"""Draws are dealt to this many groups: the spread is estimated in each, and how it varies tells its error."""
DRAWS: Final = 8 * GROUPS
FEWEST_DRAWS: Final = 2 * GROUPS
MAX_SECONDS: Final = 4.0
"""Time for the draws of one model; too few of them until then do not decide."""
MAX_ELEMENTS: Final = 1 << 16
"""Elements of an output that are compared, its first ones."""
STANDARD_ERRORS: Final = 6.0
"""Difference that chance does not explain: 1 in 30,000 comparisons of equal models has one, and it must come twice."""
SCALES: Final = 3.0
"""Difference of two models as a multiple of that of two sessions of one."""
SMALLEST: Final = 1e-30
ROUNDING: Final = 1e-3
"""Difference that rounding explains, as a share of the largest magnitude."""


@dataclass(frozen=True)
class _Draws:
    """The statistics of many draws of one output."""

    shape: tuple[int, ...]
    mean: np.ndarray
    error: np.ndarray
    """Standard error of the mean, for each element."""
    spreads: np.ndarray
    """The spread over the draws of each group, as the root of the mean square over the elements."""
    scale: float


def compare_draws(
    before: Sequence[InferenceSession],
    after: InferenceSession,
    feeds_before: Mapping[str, np.ndarray],
    feeds_after: Mapping[str, np.ndarray],
) -> str:
    """Return the reason why two models do not have the same distribution of outputs; empty if they do.

    The scale is how two sessions `before` of the old model differ: some operators of onnxruntime draw numbers that
    depend on each other.

    Raises:
        TimeoutError: the models are too slow for enough draws.
        ValueError: the sizes of outputs are random too.
    """
    problem = ""
    for _ in range(2):
        first, second = (_draw(session, feeds_before) for session in before)
        usual = _differences(first, second)
        found = _differences(first, _draw(after, feeds_after))
        problems = [
            difference.text
            for scale, difference in zip(usual, found, strict=True)
            if difference.errors > max(STANDARD_ERRORS, SCALES * scale.errors)
        ]
        if not problems:
            return ""
        problem = problems[0]
    return problem


@dataclass(frozen=True)
class _Difference:
    errors: float
    """In standard errors."""
    text: str


def _differences(before: Sequence[_Draws], after: Sequence[_Draws]) -> list[_Difference]:
    """The differences of mean and spread of each output."""
    differences: list[_Difference] = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.shape != new.shape:
            raise ValueError(f"output {number} has shape {new.shape} instead of {old.shape}")
        rounding = ROUNDING * old.scale + SMALLEST
        shift = np.abs(new.mean - old.mean)
        errors = math.sqrt(float((old.error**2 + new.error**2 + rounding**2).sum()) + SMALLEST)
        text = f"output {number}: the mean of many draws is off by up to {shift.max(initial=0.0):.3g}"
        differences.append(_Difference(math.sqrt(float((shift**2).sum())) / errors, text))
        error = math.sqrt((old.spreads.var(ddof=1) + new.spreads.var(ddof=1)) / GROUPS + rounding**2)
        spreads = [float(draws.spreads.mean()) for draws in (old, new)]
        text = f"output {number}: the spread of many draws is {spreads[1]:.3g} instead of {spreads[0]:.3g}"
        differences.append(_Difference(abs(spreads[1] - spreads[0]) / error, text))
    return differences


def _draw(session: InferenceSession, feeds: Mapping[str, np.ndarray]) -> list[_Draws]:
    """Run a model many times; texts are left out."""
    started = time.monotonic()
    draws: list[list[np.ndarray]] = []
    while len(draws) < DRAWS and (time.monotonic() - started < MAX_SECONDS or len(draws) % GROUPS):
        arrays = output_arrays(session.run(None, dict(feeds)))
        draws.append([array for array in arrays if is_float(array) or array.dtype.kind in "biu"])
        if len(draws) < FEWEST_DRAWS and time.monotonic() - started > MAX_SECONDS:
            raise TimeoutError(f"{len(draws)} draws take {MAX_SECONDS:g} s")
    return [_summary(arrays) for arrays in zip(*draws, strict=True)]


def _summary(draws: Sequence[np.ndarray]) -> _Draws:
    shapes = {draw.shape for draw in draws}
    if len(shapes) > 1:
        raise ValueError("their sizes change from draw to draw")
    values = np.stack([draw.ravel()[:MAX_ELEMENTS] for draw in draws]).astype(np.float64)
    values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    groups = values.reshape(GROUPS, -1, values.shape[1])
    spreads = np.sqrt(groups.var(axis=1, ddof=1).mean(axis=1))
    error = values.std(axis=0, ddof=1) / math.sqrt(len(draws))
    return _Draws(shapes.pop(), values.mean(axis=0), error, spreads, float(np.abs(values).max(initial=0.0)))
