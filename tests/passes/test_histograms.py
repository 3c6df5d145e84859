"""Histograms of bounded size."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime.quantization.calibrate import HistogramCollector

from autoopt.passes.quantize.histograms import Histogram, entropy_range, percentile_range


def histogram(values: np.ndarray, bins: int = 4096) -> Histogram:
    bound = np.float32(np.abs(values).max())
    counts, _ = np.histogram(values, bins, range=(-float(bound), float(bound)))
    return Histogram(counts, bound, np.float32(values.min()), np.float32(values.max()))


VALUES = {
    "normal": np.random.default_rng(0).standard_normal(20_000).astype(np.float32),
    "positive": np.random.default_rng(0).exponential(1.0, 20_000).astype(np.float32),
    "few": np.array([-1, 0, 0, 2], np.float32),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("bins", [512, 300])
def test_the_entropy_range_is_the_library_s(kind: str, bins: int) -> None:
    found = histogram(VALUES[kind], bins)
    counts, edges = found.rebinned(bins)
    library = HistogramCollector("entropy", False, bins, 128, 99.9, "same")
    expected = library.get_entropy_threshold((counts, edges, found.low, found.high, found.bound), 128)
    assert entropy_range(found, bins) == pytest.approx(tuple(map(float, expected)))


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
