"""Calibration data as quantizers read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autoopt.passes.base import PassContext, Refused
from autoopt.passes.quantize.calibration import CalibrationReader, enough_items
from autoopt.target import Accelerator

FEEDS = [{"x": np.full(2, number, np.float32)} for number in range(6)]


def context(folder: Path, feeds: list[dict[str, np.ndarray]] | None) -> PassContext:
    calibration = None if feeds is None else lambda: iter(feeds)
    return PassContext(folder / "model.onnx", folder, Accelerator(), calibration=calibration)


def test_a_reader_starts_again_and_spreads_its_limit_over_the_data(tmp_path: Path) -> None:
    reader = CalibrationReader(context(tmp_path, FEEDS), limit=2)
    for _ in range(2):
        assert [feed["x"][0] for feed in reader] == [0, 3]
        assert reader.get_next() is None
        reader.rewind()
    assert len(list(CalibrationReader(context(tmp_path, FEEDS)))) == 6


@pytest.mark.parametrize(("side", "items"), [(1, 256), (640, 27), (4000, 16)])
def test_ranges_need_fewer_items_of_large_inputs(tmp_path: Path, side: int, items: int) -> None:
    feed = {"x": np.zeros((1, 3, side, side), np.uint8)}
    assert enough_items(context(tmp_path, [feed])) == items


@pytest.mark.parametrize(("feeds", "reason"), [(None, "needs calibration data"), ([], "holds no items")])
def test_missing_data_are_refused(tmp_path: Path, feeds: list[dict[str, np.ndarray]] | None, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        CalibrationReader(context(tmp_path, feeds))
