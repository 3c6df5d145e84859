"""Histograms of activations in bounded memory, and the ranges that onnxruntime's methods derive from them.

onnxruntime keeps every activation of every item before it counts. Here items are counted one by one, in bins that
follow from the extreme values, so that a tensor takes the same memory however many items there are. The ranges are the
library's, up to the sampling of large tensors (`MAX_VALUES`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import np

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

BINS: Final = 4096
"""Bins of a stored histogram: all powers of two up to this are made from it."""
MAX_VALUES: Final = 1 << 22
"""Values of a tensor that are counted, spread over all items; more change no percentile that is in use."""
COUNTED_AT_ONCE: Final = 1 << 14
"""Values of a tensor that wait to be counted together."""
QUANTIZED_BINS: Final = 128
"""Levels that the entropy method compares with."""
SMOOTHING: Final = 1e-4
"""Count that onnxruntime's entropy method gives to an empty bin."""
COUNTS_AT_ONCE: Final = 1 << 17
"""Counts of several tensors that the entropy method computes with at once: each call of numpy has its price."""


@dataclass(frozen=True)
class Histogram:
    """The values of one tensor: `counts` in equal bins from -`bound` to `bound`, and the exact extremes."""

    counts: np.ndarray
    bound: np.float32
    low: np.float32
    high: np.float32

    def rebinned(self, bins: int) -> tuple[np.ndarray, np.ndarray]:
        """Counts and edges with fewer bins, as onnxruntime makes them; `bins` divides the number there is."""
        counts = self.counts.reshape(bins, -1).sum(axis=1)
        return counts, np.linspace(-self.bound, self.bound, bins + 1, dtype=np.float32)

    def folded(self, bins: int) -> tuple[np.ndarray, np.ndarray]:
        """Counts and edges of the absolute values; twice `bins` divides the number there is."""
        counts, _ = self.rebinned(2 * bins)
        return counts[bins:] + counts[:bins][::-1], np.linspace(0, self.bound, bins + 1, dtype=np.float32)


def collect(
    session: InferenceSession,
    feeds: Iterable[Mapping[str, np.ndarray]],
    extremes: Mapping[str, tuple[np.float32, np.float32]],
    items: int,
    bins: int = BINS,
) -> dict[str, Histogram]:
    """Count the values of those outputs of a session whose `extremes` are given; `items` is the number of feeds."""
    names = [output.name for output in session.get_outputs() if output.name in extremes]
    counters = {name: _Counter(float(np.abs(extremes[name]).max()), bins) for name in names}
    limit = max(1, MAX_VALUES // max(1, items))
    for feed in feeds:
        for name, array in zip(names, session.run(names, dict(feed)), strict=True):
            counters[name].add(_sampled(array, limit))
    histograms: dict[str, Histogram] = {}
    for name, counter in counters.items():
        histograms[name] = Histogram(counter.total(), np.float32(counter.bound), *extremes[name])
    return histograms


class _Counter:
    """Counts values in equal bins from -`bound` to `bound`, many at a time: each call of numpy has its price."""

    def __init__(self, bound: float, bins: int) -> None:
        self.bound = bound
        self._counts = np.zeros(bins, np.int64)
        self._waiting: list[np.ndarray] = []
        self._size = 0

    def add(self, values: np.ndarray) -> None:
        """Count these values, which the caller must not change, now or later."""
        self._waiting.append(values)
        self._size += values.size
        if self._size >= COUNTED_AT_ONCE:
            self.total()

    def total(self) -> np.ndarray:
        """The counts of all values so far."""
        if self._waiting:
            # Edges have the type of the values: float16 has too few numbers for so many bins.
            values = np.concatenate(self._waiting).astype(np.float32, copy=False)
            self._counts += np.histogram(values, len(self._counts), range=(-self.bound, self.bound))[0]
            self._waiting, self._size = [], 0
        return self._counts


def _sampled(array: np.ndarray, limit: int) -> np.ndarray:
    """At most about `limit` of the finite values, spread over the array."""
    values = array.reshape(-1)
    step = -(-values.size // limit)
    if step > 1:
        # An odd step meets all positions of dimensions whose size is a power of two.
        values = values[:: step | 1]
    finite: np.ndarray = values[np.isfinite(values)]
    return finite


def entropy_ranges(histograms: Mapping[str, Histogram], bins: int) -> dict[str, tuple[float, float]]:
    """The range of each tensor whose quantized distribution is closest to the true one, by Kullback-Leibler divergence.

    The method of S. Migacz, "8-bit inference with TensorRT" (GTC 2017), as onnxruntime's Entropy has it.
    """
    names = list(histograms)
    at_once = max(1, COUNTS_AT_ONCE // bins)
    ranges: dict[str, tuple[float, float]] = {}
    for first in range(0, len(names), at_once):
        batch = names[first : first + at_once]
        rebinned = [histograms[name].rebinned(bins) for name in batch]
        windows = _closest_windows(np.array([counts for counts, _ in rebinned]))
        for name, (_, edges), (start, end) in zip(batch, rebinned, windows, strict=True):
            low, high = float(histograms[name].low), float(histograms[name].high)
            ranges[name] = max(float(edges[start]), low), min(float(edges[end]), high)
    return ranges


def _closest_windows(counts: np.ndarray) -> np.ndarray:
    """Start and end of the window with the least divergence, for each row of counts; the smallest of equal ones."""
    bins = counts.shape[1]
    best = np.full(len(counts), np.inf)
    windows = np.tile((0, bins), (len(counts), 1))
    middle = bins // 2
    for half in range(middle, QUANTIZED_BINS // 2 - 1, -1):
        start, end = middle - half, min(middle + half + 1, bins)
        divergences = _divergences(counts, start, end)
        better = divergences <= best
        best[better] = divergences[better]
        windows[better] = start, end
    return windows


def _divergences(counts: np.ndarray, start: int, end: int) -> np.ndarray:
    """The divergence of a window in `QUANTIZED_BINS` levels from the window with all outliers at its ends, by row."""
    window = counts[:, start:end]
    rows, size = window.shape
    true = window.copy()
    true[:, 0] += counts[:, :start].sum(axis=1)
    true[:, -1] += counts[:, end:].sum(axis=1)
    width = size // QUANTIZED_BINS
    whole = width * QUANTIZED_BINS
    levels = window[:, :whole].reshape(rows, QUANTIZED_BINS, width).sum(axis=2)
    levels[:, -1] += window[:, whole:].sum(axis=1)
    filled = np.count_nonzero(true[:, :whole].reshape(rows, QUANTIZED_BINS, width), axis=2)
    quantized = np.zeros(window.shape, np.int64)
    means = np.divide(levels, filled, out=np.zeros(levels.shape), where=filled != 0)
    quantized[:, :whole] = np.repeat(means, width, axis=1)
    p, q = _smoothed(true), _smoothed(quantized)
    divergences: np.ndarray = np.sum(p * np.log(p / q), axis=1)
    divergences[np.isnan(divergences)] = np.inf
    return divergences


def _smoothed(counts: np.ndarray) -> np.ndarray:
    """Each row of counts as a distribution without zeros, as onnxruntime smooths it; NaN if that is impossible."""
    is_zero = counts == 0
    zeros = np.count_nonzero(is_zero, axis=1)
    share = np.full(len(counts), np.nan)
    np.divide(SMOOTHING * zeros, counts.shape[1] - zeros, out=share, where=zeros < counts.shape[1])
    share[share >= 1] = np.nan
    smoothed = counts.astype(np.float32) - share.astype(np.float32)[:, np.newaxis]
    smoothed[is_zero] = SMOOTHING
    smoothed[np.isnan(share)] = np.nan
    distributions: np.ndarray = smoothed / smoothed.sum(axis=1, keepdims=True)
    return distributions
