"""Charts as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import altair as alt
import pytest

from autoopt.errors import InputError
from autoopt.report.elements import drawing
from autoopt.report.elements.drawing import FEASIBLE, can_draw, inline, picture, require_altair

CHART = alt.layer(alt.Chart(alt.Data(values=[{"x": 1, "t": "a <b>"}])).mark_point(color=FEASIBLE).encode(
    x="x:Q", description="t:N", href="t:N"
))  # fmt: skip


def test_a_picture_is_an_svg_file_of_the_size_asked_for() -> None:
    root = ElementTree.fromstring(picture(CHART, 400, 200))
    assert (root.get("width"), root.get("height")) == ("400", "200")


def test_on_a_page_the_colours_are_those_of_the_page() -> None:
    svg = inline(CHART, 400, 200)
    assert "var(--feasible)" in svg
    assert FEASIBLE not in svg
    assert 'aria-label="a &lt;b&gt;"' in svg


def test_labels_that_would_nearly_touch_are_left_out() -> None:
    axis = alt.Axis(values=[1, 2, 3, 4, 5, 6], labelExpr="datum.value + 'x slower'")
    chart = alt.layer(alt.Chart(alt.Data(values=[{"x": 1}, {"x": 6}])).mark_point().encode(
        x=alt.X("x:Q", axis=axis, scale=alt.Scale(zero=False))
    ))  # fmt: skip
    shown = [picture(chart, width, 200).count('opacity="1">') for width in (460, 500)]
    assert shown[1] - shown[0] == 3, "every second label, whose gap of 8 px a browser's wider font would close"


def test_charts_need_their_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_draw()
    monkeypatch.setattr(drawing.importlib.util, "find_spec", lambda name: None)
    assert not can_draw()
    with pytest.raises(InputError, match="Altair"):
        require_altair()
