"""Histograms of bounded size."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime.quantization.calibrate import HistogramCollector

from autoopt.passes.quantize.histograms import Histogram, entropy_ranges, percentile_range


def histogram(values: np.ndarray, bins: int = 4096) -> Histogram:
    bound = np.float32(np.abs(values).max())
    counts, _ = np.histogram(values, bins, range=(-float(bound), float(bound)))
    return Histogram(counts, bound, np.float32(values.min()), np.float32(values.max()))


VALUES = {
    "normal": np.random.default_rng(0).standard_normal(20_000).astype(np.float32),
    "positive": np.random.default_rng(0).exponential(1.0, 20_000).astype(np.float32),
    "few": np.array([-1, 0, 0, 2], np.float32),
}


@pytest.mark.parametrize("bins", [512, 300, 128])
def test_the_entropy_ranges_are_the_library_s(bins: int) -> None:
    found = {kind: histogram(values, bins) for kind, values in VALUES.items()}
    ranges = entropy_ranges(found, bins)
    library = HistogramCollector("entropy", False, bins, 128, 99.9, "same")
    for kind, one in found.items():
        counts, edges = one.rebinned(bins)
        expected = library.get_entropy_threshold((counts, edges, one.low, one.high, one.bound), 128)
        assert ranges[kind] == pytest.approx(tuple(map(float, expected)))


def test_tensors_without_values_have_an_entropy_range() -> None:
    empty = Histogram(np.zeros(512, np.int64), np.float32(1), np.float32(0), np.float32(0))
    assert entropy_ranges({"empty": empty}, 512) == {"empty": (0.0, 0.0)}


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_percentile_leaves_out_the_outermost_values(symmetric: bool) -> None:
    low, high = percentile_range(histogram(VALUES["normal"]), 95.0, 2048, symmetric)
    assert (low, high) == pytest.approx((-1.96, 1.96), abs=0.05)
    assert percentile_range(histogram(VALUES["positive"]), 100.0, 2048, symmetric)[0] >= 0


def test_fewer_bins_count_the_same_values() -> None:
    fine = histogram(VALUES["normal"])
    counts, edges = fine.rebinned(512)
    assert np.array_equal(counts, histogram(VALUES["normal"], 512).counts)
    assert (len(edges), edges[0], edges[-1]) == (513, -fine.bound, fine.bound)
    assert fine.folded(1024)[0].sum() == counts.sum() == 20_000
