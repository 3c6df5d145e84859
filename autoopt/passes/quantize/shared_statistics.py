"""Statistics about the activations of a model, and the files in which the workers of one process share them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from autoopt.passes.quantize.histograms import Histogram
from autoopt.working_folder import SHARED_FOLDER

FILES: Final = 8
"""Maximum number of models whose statistics are shared."""


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


@contextmanager
def shared(key: str, statistics: Statistics) -> Iterator[None]:
    """Complete statistics within the block, after adding those that other workers have collected.

    Workers that need the statistics of the same model wait for each other. `key` identifies model, data and operators.
    """
    folder = os.environ.get(SHARED_FOLDER)
    if not folder:
        yield
        return
    name = hashlib.sha256(key.encode()).hexdigest()
    path = Path(folder, f"calibration-{name}.npz")
    with Path(folder, f"calibration-{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            _add_stored(path, statistics)
        yield
        _store(path, statistics)


def _add_stored(path: Path, statistics: Statistics) -> None:
    with np.load(path, allow_pickle=False) as arrays:
        facts = json.loads(str(arrays["facts"]))
        statistics.items = facts["items"]
        statistics.ranges.update(facts["ranges"])
        for name, (low, high) in facts["extremes"].items():
            statistics.extremes[name] = (np.float32(low), np.float32(high))
        for bins, bounds in facts["bounds"].items():
            histograms: dict[str, Histogram] = {}
            for (name, bound), counts in zip(bounds.items(), arrays[bins], strict=True):
                histograms[name] = Histogram(counts, np.float32(bound), *statistics.extremes[name])
            statistics.histograms[int(bins)] = histograms


def _store(path: Path, statistics: Statistics) -> None:
    """Write a file that replaces the last one at once, and remove the oldest files of other models."""
    bounds: dict[str, dict[str, float]] = {}
    arrays: dict[str, np.ndarray] = {}
    for bins, histograms in statistics.histograms.items():
        bounds[str(bins)] = {name: float(histogram.bound) for name, histogram in histograms.items()}
        arrays[str(bins)] = np.array([histogram.counts for histogram in histograms.values()], np.int64)
    extremes = {name: (float(low), float(high)) for name, (low, high) in statistics.extremes.items()}
    facts = {"items": statistics.items, "ranges": statistics.ranges, "extremes": extremes, "bounds": bounds}
    new = path.with_suffix(".new.npz")
    arrays["facts"] = np.array(json.dumps(facts))
    np.savez(new, **arrays)  # type: ignore[arg-type]  # numpy types its own options only
    new.replace(path)
    for old in sorted(path.parent.glob("calibration-*.npz"), key=_changed)[:-FILES]:
        old.unlink(missing_ok=True)


def _changed(path: Path) -> float:
    """The time of the last change; 0 if another worker has removed the file."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
