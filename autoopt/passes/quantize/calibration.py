"""Calibration data as quantizers read it, and the range of every activation over it.

Statistics of a model are collected once and serve all methods and settings: extreme values first, then histograms of
bounded size (`histograms`).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoopt.model.files import digest_file
from autoopt.model.lazy_imports import np
from autoopt.model.model_file import artifact_digest
from autoopt.model.session import make_plain_session
from autoopt.model.split import beside_weights, is_split
from autoopt.passes.base import PassContext, Refused
from autoopt.passes.onnx_tools.graphs import is_large, walk_nodes
from autoopt.passes.onnx_tools.libraries import written
from autoopt.passes.quantize.histograms import BINS, QUANTIZED_BINS, Histogram, collect, entropy_ranges
from autoopt.tuning import QUANTIZATION

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime.quantization.calibrate import TensorData, TensorsData

INFINITE: Final = 1e30
"""Magnitude from which a value stands for infinity."""
CACHE_SIZE: Final = 4
"""Models whose statistics a worker keeps."""


def enough_items(context: PassContext) -> int:
    """The number of calibration items that ranges need: fewer for large inputs, such as images.

    Raises:
        Refused: as `CalibrationReader`.
    """
    return items_for(next(iter(CalibrationReader(context))))


def items_for(feed: Mapping[str, np.ndarray]) -> int:
    """The number of items that ranges need if each is as large as `feed`."""
    elements = sum(array.size for array in feed.values())
    return max(QUANTIZATION.fewest_items, min(QUANTIZATION.max_items, QUANTIZATION.max_elements // max(1, elements)))


class CalibrationReader:
    """Iterates over the calibration data. Has the methods of onnxruntime's CalibrationDataReader.

    With a `limit`, that many feeds are spread evenly over the data, whose items often come in sequences or sorted by
    class.

    Raises:
        Refused: the run has no calibration data, or the data has no items.
    """

    def __init__(self, context: PassContext, limit: int = 0) -> None:
        if context.calibration is None:
            raise Refused("needs calibration data, and the run has none (data: calibration)")
        self._open = context.calibration
        self._step = 1
        if limit:
            self._step = max(1, -(-sum(1 for _ in self._open()) // limit))
        self.rewind()
        if self.get_next() is None:
            raise Refused("the calibration data holds no items")
        self.rewind()

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next feed, or None at the end."""
        return next(self._feeds, None)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self._feeds

    def rewind(self) -> None:
        """Start again from the first feed."""
        self._feeds = islice(self._open(), None, None, self._step)


@dataclass(frozen=True)
class Ranges:
    """The ranges of a model's activations."""

    path: Path
    """A file that `quantize_static` reads in place of calibrating itself."""
    tensors: frozenset[str]
    unusable: frozenset[str]
    """Tensors without a range, because not all their values are finite."""
    highest: Mapping[str, float] = field(default_factory=dict)
    """The largest value of each tensor."""


@dataclass
class Statistics:
    """The statistics of a model that calibration collects; all methods and settings derive ranges from them."""

    extremes: dict[str, tuple[np.float32, np.float32]] = field(default_factory=dict)
    """Smallest and largest value of each tensor."""
    histograms: dict[int, dict[str, Histogram]] = field(default_factory=dict)
    """By number of bins; of the tensors whose values are finite."""


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
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData, save_tensors_data
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    reader = CalibrationReader(context, limit or enough_items(context))
    # Statistics of all operators that have a quantized form serve every choice among them.
    collected = sorted({*op_types, *QDQRegistry, *QLinearOpsRegistry})
    path = context.work / "ranges.json"
    with written(model, context.work) as stored:
        collector = _Collector(stored, reader, collected, large=is_large(model) and not is_split(stored))
        ranges = collector.ranges(method, settings)
        extremes = collector.statistics.extremes
    usable = {name for name, pair in extremes.items() if _is_finite(pair)}
    found = {name: value for name, value in ranges.items() if name in usable}
    save_tensors_data(TensorsData(CalibrationMethod[method], found), path)
    for node in walk_nodes(model.graph):
        if node.op_type == "Softmax" and node.input[0] in usable:
            low, high = map(float, extremes[node.input[0]])
            if high - low > QUANTIZATION.widest_scores:
                usable.remove(node.input[0])
    highest = {name: float(high) for name, (_, high) in extremes.items()}
    return Ranges(path, frozenset(usable), frozenset(extremes) - usable, highest)


class _Collector:
    """Collects those statistics of a model that a method needs and that are still missing."""

    def __init__(self, model: Path, reader: CalibrationReader, op_types: list[str], large: bool) -> None:
        self._model = model
        self._reader = reader
        self._op_types = op_types
        self._large = large
        self._items = 0
        identity = artifact_digest(model)
        if is_split(model):  # an outline, which holds the digests of its weights
            identity = digest_file(model)
        digest = hashlib.sha256(f"{identity} {','.join(op_types)}".encode())
        for feed in reader:
            self._items += 1
            for name in sorted(feed):
                array = feed[name]
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.tobytes())
        self.statistics = _cache.setdefault(digest.hexdigest(), Statistics())
        _cache.move_to_end(digest.hexdigest())
        while len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)

    def ranges(self, method: str, settings: Mapping[str, Any]) -> dict[str, TensorData]:
        """The ranges by a method, as onnxruntime's calibrators return them."""
        extremes = self.statistics.extremes
        if not extremes:
            for name, data in self._min_max({}).items():
                low, high = data.range_value
                extremes[name] = (np.float32(np.min(low)), np.float32(np.max(high)))
        if method != "MinMax":
            return self._histogram_ranges(method, settings)
        if settings.get("moving_average"):
            return dict(self._min_max(settings).items())
        if settings.get("symmetric"):
            return {name: _range(-max(-low, high), max(-low, high)) for name, (low, high) in extremes.items()}
        return {name: _range(low, high) for name, (low, high) in extremes.items()}

    def _min_max(self, settings: Mapping[str, Any]) -> TensorsData:
        calibrator = self._calibrator("MinMax", settings)
        self._reader.rewind()
        calibrator.collect_data(self._reader)
        return calibrator.compute_data()

    def _histogram_ranges(self, method: str, settings: Mapping[str, Any]) -> dict[str, TensorData]:
        from onnxruntime.quantization.calibrate import HistogramCollector

        bins, percentile = int(settings["num_bins"]), float(settings.get("percentile", 0))
        folds = method == "Percentile" and bool(settings.get("symmetric", True))
        histograms = self._histograms(2 * bins if folds else bins)
        if method == "Entropy":  # of which the library computes one tensor in 0.2 s
            return {name: _range(*pair) for name, pair in entropy_ranges(histograms, bins).items()}
        scenario = settings.get("scenario", "same")
        collector = HistogramCollector(method.lower(), folds, bins, QUANTIZED_BINS, percentile, scenario)
        for name, one in histograms.items():
            counts, edges = one.folded(bins) if folds else one.rebinned(bins)
            collector.histogram_dict[name] = (counts, edges, one.low, one.high, one.bound)
        computed: dict[str, Any] = collector.compute_collection_result()
        if method == "Distribution":
            return computed
        return {name: _range(low, high) for name, (low, high, *_) in computed.items()}

    def _histograms(self, bins: int) -> dict[str, Histogram]:
        """Histograms that can be rebinned to `bins`."""
        histograms, stored = self.statistics.histograms, bins if BINS % bins else BINS
        if stored not in histograms:
            session = self._calibrator("Percentile", {}).infer_session
            step = -(-self._items // QUANTIZATION.max_items)
            usable = {name: pair for name, pair in self.statistics.extremes.items() if _is_finite(pair)}
            self._reader.rewind()
            feeds = islice(self._reader, None, None, step)
            histograms[stored] = collect(session, feeds, usable, -(-self._items // step), stored)
        return histograms[stored]

    def _calibrator(self, method: str, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401  the library's, by method
        from onnxruntime.quantization.calibrate import MinMaxCalibrater, PercentileCalibrater

        from autoopt.passes.patches.ort_quantizers import lean_quantizers

        calibrators = {"MinMax": MinMaxCalibrater, "Percentile": PercentileCalibrater}
        with beside_weights(b"", self._model.parent) as augmented, lean_quantizers(augmented):
            calibrator = calibrators[method](
                self._model, self._op_types, str(augmented), use_external_data_format=self._large, **settings
            )
            calibrator.augment_graph()
            if self._large:
                calibrator.create_inference_session()
            else:
                # The library's session takes all cores, and its busy loops slow down the other workers.
                calibrator.infer_session = make_plain_session(augmented)
        return calibrator


def _is_finite(extremes: tuple[np.float32, np.float32]) -> bool:
    """False also for the lowest numbers of a type, which masks of attention have in place of infinity."""
    return bool((np.abs(extremes) < INFINITE).all())


def _range(low: float | np.float32, high: float | np.float32) -> TensorData:
    from onnxruntime.quantization.calibrate import TensorData

    return TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
