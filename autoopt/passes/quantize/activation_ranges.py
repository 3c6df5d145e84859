"""The range of every activation over the calibration data.

Statistics of a model are collected once and serve all methods and settings: extreme values first, then histograms of
bounded size (`histograms`).
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autoopt.model import io
from autoopt.model.files import digest_file
from autoopt.model.model_file import artifact_digest
from autoopt.model.session import make_plain_session
from autoopt.model.split import beside_weights, is_split
from autoopt.passes.base import PassContext
from autoopt.passes.onnx_tools.graphs import is_large, walk_nodes
from autoopt.passes.patches.ort_quantizers import lean_quantizers
from autoopt.passes.quantize.calibration import MAX_ITEMS, CalibrationReader, Ranges, enough_items
from autoopt.passes.quantize.histograms import (
    BINS,
    QUANTIZED_BINS,
    Histogram,
    collect,
    entropy_ranges,
    percentile_range,
)

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime.quantization.calibrate import TensorData, TensorsData

INFINITE: Final = 1e30
"""Magnitude from which a value stands for infinity."""
WIDEST_SCORES: Final = 256.0
"""Span of what a Softmax reads that 8 bits hold in steps of 1. Scores that a mask lowers by 10,000 stay in float."""
CACHE_SIZE: Final = 4
"""Models whose statistics a worker keeps."""


@dataclass
class Statistics:
    """The statistics of a model that calibration collects; all methods and settings derive ranges from them."""

    op_types: list[str]
    extremes: dict[str, tuple[np.float32, np.float32]] = field(default_factory=dict)
    """Smallest and largest value of each tensor."""
    items: int = 0
    histograms: dict[int, dict[str, Histogram]] = field(default_factory=dict)
    """By number of bins."""
    ranges: dict[str, str] = field(default_factory=dict)
    """The contents of files with ranges, by method and settings."""


_cache: OrderedDict[str, Statistics] = OrderedDict()
"""Statistics by content of model and data."""


def calibrate(
    model: ModelProto,
    context: PassContext,
    method: str,
    op_types: list[str],
    settings: Mapping[str, object],
    limit: int = 0,
) -> Ranges:
    """Find the range of every activation, from statistics that are collected once for all methods and settings.

    `method` and `settings` are those of onnxruntime's `create_calibrator`; `limit` is the largest number of calibration
    items, 0 for as many as ranges need.

    Raises:
        Refused: there is no calibration data.
    """
    from onnxruntime.quantization.calibrate import save_tensors_data

    reader = CalibrationReader(context, limit or enough_items(context))
    path = context.work / "ranges.json"
    key = json.dumps([method, settings], sort_keys=True)
    with _stored(model, context.work) as stored:
        model_key = _cache_key(stored, reader, op_types)
        statistics = _statistics(model_key, op_types)
        if key not in statistics.ranges:
            large = is_large(model) and not is_split(stored)
            collector = _Collector(stored, reader, large, statistics)
            save_tensors_data(collector.tensors_data(method, settings), path)
            statistics.ranges[key] = path.read_text()
    path.write_text(statistics.ranges[key])
    usable = {name for name, extremes in statistics.extremes.items() if _is_finite(extremes)}
    scores = {node.input[0] for node in walk_nodes(model.graph) if node.op_type == "Softmax"}
    for name in usable & scores:
        low, high = map(float, statistics.extremes[name])
        if high - low > WIDEST_SCORES:
            usable.remove(name)
    highest = {name: float(high) for name, (_, high) in statistics.extremes.items()}
    return Ranges(path, frozenset(usable), frozenset(statistics.extremes) - usable, highest)


@contextmanager
def _stored(model: ModelProto, work: Path) -> Iterator[Path]:
    """The model as a file; that of an outline is beside the weights, in the working directory."""
    if any(io.external_tensors(model)):
        with beside_weights(model.SerializeToString(deterministic=True), Path.cwd()) as path:
            yield path
    else:
        yield io.save(model, work / "calibrate", external=is_large(model))


def _statistics(key: str, op_types: list[str]) -> Statistics:
    """The statistics of a model; empty ones if they are not collected yet."""
    statistics = _cache.setdefault(key, Statistics(_collected_types(op_types)))
    _cache.move_to_end(key)
    while len(_cache) > CACHE_SIZE:
        _cache.popitem(last=False)
    return statistics


def _collected_types(op_types: list[str]) -> list[str]:
    """The operators to collect statistics of: those of all that have a quantized form serve every choice among them."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return sorted({*op_types, *QDQRegistry, *QLinearOpsRegistry})


class _Collector:
    """Collects the statistics of a model that a method needs and that are still missing."""

    def __init__(self, model: Path, reader: CalibrationReader, large: bool, statistics: Statistics) -> None:
        self._model = model
        self._reader = reader
        self._large = large
        self._statistics = statistics

    def tensors_data(self, method: str, settings: Mapping[str, Any]) -> TensorsData:
        """The ranges by a method, as onnxruntime's calibrators return them."""
        from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData

        if not self._statistics.extremes:
            self._collect_extremes()
        if method == "MinMax" and settings.get("moving_average"):
            ranges = dict(self._min_max(settings).items())
        elif method == "MinMax":
            ranges = {name: _min_max_range(pair, settings) for name, pair in self._statistics.extremes.items()}
        else:
            ranges = self._histogram_ranges(method, settings)
        usable = {name: ranges[name] for name in ranges if _is_finite(self._statistics.extremes[name])}
        return TensorsData(CalibrationMethod[method], usable)

    def _collect_extremes(self) -> None:
        statistics = self._statistics
        for name, data in self._min_max({}).items():
            low, high = data.range_value
            statistics.extremes[name] = (np.float32(np.min(low)), np.float32(np.max(high)))

    def _min_max(self, settings: Mapping[str, Any]) -> TensorsData:
        calibrator = self._calibrator("MinMax", settings)
        counted = _Counted(self._reader)
        self._reader.rewind()
        calibrator.collect_data(counted)
        self._statistics.items = counted.items
        return calibrator.compute_data()

    def _histogram_ranges(self, method: str, settings: Mapping[str, Any]) -> dict[str, TensorData]:
        bins = int(settings["num_bins"])
        symmetric = method == "Percentile" and bool(settings.get("symmetric", True))
        histograms = self._histograms(2 * bins if symmetric else bins)
        if method == "Distribution":
            return _distribution(histograms, bins, str(settings["scenario"]))
        if method == "Entropy":
            ranges = entropy_ranges(histograms, bins)
        else:
            percentile = float(settings["percentile"])
            ranges = {name: percentile_range(one, percentile, bins, symmetric) for name, one in histograms.items()}
        return {name: _range(low, high) for name, (low, high) in ranges.items()}

    def _histograms(self, bins: int) -> dict[str, Histogram]:
        """Histograms that can be rebinned to `bins`."""
        statistics = self._statistics
        stored = bins if BINS % bins else BINS
        if stored not in statistics.histograms:
            session = self._calibrator("Percentile", {}).infer_session
            step = -(-statistics.items // MAX_ITEMS)
            usable = {name: pair for name, pair in statistics.extremes.items() if _is_finite(pair)}
            self._reader.rewind()
            feeds = islice(self._reader, None, None, step)
            statistics.histograms[stored] = collect(session, feeds, usable, -(-statistics.items // step), stored)
        return statistics.histograms[stored]

    def _calibrator(self, method: str, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401  the library's, by method
        from onnxruntime.quantization.calibrate import MinMaxCalibrater, PercentileCalibrater

        calibrators = {"MinMax": MinMaxCalibrater, "Percentile": PercentileCalibrater}
        with beside_weights(b"", self._model.parent) as augmented, lean_quantizers(augmented):
            calibrator = calibrators[method](
                self._model, self._statistics.op_types, str(augmented), use_external_data_format=self._large, **settings
            )
            calibrator.augment_graph()
            if self._large:
                calibrator.create_inference_session()
            else:
                # The library's session takes all cores, and its busy loops slow down the other workers.
                calibrator.infer_session = make_plain_session(augmented)
        return calibrator


class _Counted:
    """Counts what a reader returns."""

    def __init__(self, reader: CalibrationReader) -> None:
        self._reader = reader
        self.items = 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        feed = self._reader.get_next()
        self.items += feed is not None
        return feed


def _is_finite(extremes: tuple[np.float32, np.float32]) -> bool:
    """False also for the lowest numbers of a type, which masks of attention have in place of infinity."""
    return bool((np.abs(extremes) < INFINITE).all())


def _min_max_range(extremes: tuple[np.float32, np.float32], settings: Mapping[str, Any]) -> TensorData:
    low, high = map(float, extremes)
    if settings.get("symmetric"):
        bound = max(abs(low), abs(high))
        low, high = -bound, bound
    return _range(low, high)


def _range(low: float, high: float) -> TensorData:
    from onnxruntime.quantization.calibrate import TensorData

    return TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))


def _distribution(histograms: Mapping[str, Histogram], bins: int, scenario: str) -> dict[str, TensorData]:
    """Averages and deviations of the values, as float8 quantization needs them."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    collector = HistogramCollector("distribution", False, bins, QUANTIZED_BINS, 0.0, scenario)
    for name, histogram in histograms.items():
        counts, edges = histogram.rebinned(bins)
        collector.histogram_dict[name] = (counts, edges, histogram.low, histogram.high, histogram.bound)
    distribution: dict[str, TensorData] = collector.compute_collection_result()
    return distribution


def _cache_key(model: Path, reader: CalibrationReader, op_types: list[str]) -> str:
    """The identity of a stored model, its data and the operators to collect statistics of."""
    identity = artifact_digest(model)
    if is_split(model):  # an outline, which holds the digests of its weights
        identity = digest_file(model)
    digest = hashlib.sha256(identity.encode())
    for feed in reader:
        for name in sorted(feed):
            array = feed[name]
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
    return f"{digest.hexdigest()} {','.join(_collected_types(op_types))}"
