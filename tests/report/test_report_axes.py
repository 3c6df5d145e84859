"""Axes of charts in the words of people."""

from __future__ import annotations

import re
from typing import Any

import pytest

from autoopt.metrics import Estimate
from autoopt.report.elements.axes import metric_axis
from autoopt.report.elements.night_charts import chart_over_nights

altair = pytest.importorskip("altair")
vl_convert = pytest.importorskip("vl_convert")


def labels(axis: Any, low: float, high: float) -> list[str]:
    """The texts that Vega draws along an axis."""
    scale = altair.Scale(domain=[low, high], nice=False)
    chart = altair.Chart(altair.Data(values=[{"y": low}, {"y": high}])).mark_point()
    return texts(chart.encode(y=altair.Y("y:Q", scale=scale, axis=axis, title=None)))


def texts(chart: Any) -> list[str]:
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    return [text.replace("&#39;", "'") for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


@pytest.mark.parametrize(
    ("metric", "low", "high", "expected"),
    [
        ("latency_p50", 0.3, 1.3, ["3x faster", "2x faster", "1.3x faster", "same", "1.2x slower"]),
        ("size", 0.24, 1.0, ["3x smaller", "2x smaller", "1.5x smaller", "1.2x smaller", "same"]),
        ("peak_memory", 0.5, 2.0, ["2x less", "same", "1.5x more", "1.75x more", "2x more"]),
        ("throughput", 0.5, 2.0, ["2x lower", "same", "1.5x higher", "1.75x higher", "2x higher"]),
        ("accuracy", 0.975, 0.995, ["97.5 %", "98 %", "98.5 %", "99 %", "99.5 %"]),
    ],
)
def test_labels_say_what_a_figure_means(metric: str, low: float, high: float, expected: list[str]) -> None:
    assert labels(metric_axis(metric, low, high), low, high) == expected


def test_a_narrow_range_keeps_the_labels_of_its_scale() -> None:
    drawn = labels(metric_axis("latency_p50", 0.402, 0.404), 0.402, 0.404)
    assert len(drawn) > 1
    assert all(label.endswith("x faster") for label in drawn)


def test_a_date_labels_an_axis_of_nights_only_once() -> None:
    hour, start = 3600.0, 1_790_000_000.0
    for hours in ([0, 1, 2, 24, 48], [24 * day for day in range(40)]):
        values = [(start + hour * at, Estimate.exact(1.0 + at)) for at in hours]
        dates = [text for text in texts(chart_over_nights(values)) if re.fullmatch(r"\d\d-\d\d", text)]
        assert 2 < len(dates) <= 8
        assert len(set(dates)) == len(dates)


def test_sweeps_of_one_day_are_told_apart_by_their_time() -> None:
    for offsets in ((1.0, 7200.0), (1.0, 20.0, 90.0)):
        values = [(1_790_000_000.0 + at, Estimate.exact(at)) for at in offsets]
        times = [text for text in texts(chart_over_nights(values)) if re.fullmatch(r"\d\d:\d\d", text)]
        assert len(times) == len(set(times)) == 2
