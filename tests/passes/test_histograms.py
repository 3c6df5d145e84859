"""Histograms of bounded size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import made, normal
from onnxruntime.quantization.calibrate import HistogramCollector

from autoopt.model.session import make_session
from autoopt.passes.quantize.histograms import Histogram, collect, entropy_ranges


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


def test_fewer_bins_count_the_same_values() -> None:
    fine = histogram(VALUES["normal"])
    counts, edges = fine.rebinned(512)
    assert np.array_equal(counts, histogram(VALUES["normal"], 512).counts)
    assert (len(edges), edges[0], edges[-1]) == (513, -fine.bound, fine.bound)
    assert fine.folded(1024)[0].sum() == counts.sum() == 20_000


FINITE = st.floats(-100, 100, width=32)
ARRAYS = st.lists(FINITE, min_size=1, max_size=200).map(lambda values: np.array([*values, 1.0], np.float32))


@given(ARRAYS, st.sampled_from([1, 64, 512, 4096]))
def test_no_value_is_lost_in_fewer_bins(values: np.ndarray, bins: int) -> None:
    one = histogram(values)
    counts, edges = one.rebinned(bins)
    assert (counts.sum(), len(edges)) == (values.size, bins + 1)
    assert (edges[0], edges[-1]) == (-one.bound, one.bound)


@given(ARRAYS, st.sampled_from([64, 512, 2048]))
def test_folding_counts_the_absolute_values(values: np.ndarray, bins: int) -> None:
    one = histogram(values)
    counts, edges = one.folded(bins)
    assert (counts.sum(), edges[0], edges[-1]) == (values.size, 0, one.bound)


@given(st.lists(ARRAYS, min_size=1, max_size=3))
@settings(max_examples=5)
def test_ranges_of_several_tensors_at_once_are_those_of_each_alone(arrays: list[np.ndarray]) -> None:
    together = {str(number): histogram(values, 512) for number, values in enumerate(arrays)}
    ranges = entropy_ranges(together, 512)
    for name, one in together.items():
        assert ranges[name] == entropy_ranges({name: one}, 512)[name]


def test_items_are_counted_like_one_array_and_infinite_values_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(made("g (float[N, 4] x) => (float[N, 4] y) { y = Neg (x) }"), file)
    items = [normal(3, 4, seed=seed) for seed in range(5)]
    items[2][0, 0] = np.inf
    values = -np.concatenate(items).ravel()
    values = values[np.isfinite(values)]
    extremes = {"y": (np.float32(values.min()), np.float32(values.max()))}
    feeds = [{"x": item} for item in items]
    collected = collect(make_session(file), feeds, extremes, len(feeds), bins=512)["y"]
    assert collected.counts.tolist() == histogram(values, 512).counts.tolist()
    assert (collected.low, collected.high) == extremes["y"]


def test_half_precision_is_counted_too(tmp_path: Path) -> None:
    model = made("g (float16[N] x) => (float16[N] y) { y = Identity (x) }")
    file = tmp_path / "model.onnx"
    onnx.save(model, file)
    feeds = [{"x": np.linspace(-3, 3, 1000, dtype=np.float16)}]
    collected = collect(make_session(file), feeds, {"y": (np.float32(-3), np.float32(3))}, len(feeds))["y"]
    assert collected.counts.sum() == 1000
