import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from autoopt.report.svg import Mark, Plot, render, ticks

SANE = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))


@given(SANE, SANE)
def test_ticks_lie_inside_the_span_and_are_few(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    found = ticks(low, high)
    slack = 1e-6 * max(1.0, high - low)
    assert all(low - slack <= t <= high + slack for t in found)
    assert found == sorted(found)
    assert len(found) <= 6


@given(st.lists(st.tuples(SANE, SANE), min_size=1, max_size=20))
def test_every_mark_lies_inside_the_picture(points: list[tuple[float, float]]) -> None:
    svg = render(Plot("x", "y", tuple(Mark(x, y) for x, y in points)))
    circles = list(ElementTree.fromstring(svg).iter("circle"))
    assert len(circles) == len(points)
    assert all(0 <= float(c.attrib["cx"]) <= 640 and 0 <= float(c.attrib["cy"]) <= 320 for c in circles)


def test_labels_are_escaped_and_intervals_drawn() -> None:
    svg = render(Plot("a & b", "<y>", (Mark(1, 2, "front", "<script>", low=0.5, high=1.5),), steps=((0, 3), (1, 2))))
    root = ElementTree.fromstring(svg)
    assert [t.text for t in root.iter("title")] == ["<script>"]
    assert [e.attrib["d"][0] for e in root.iter("path")] == ["M"]
    assert len([e for e in root.iter("line") if e.attrib["class"] == "front bar"]) == 1


def test_nothing_to_draw_is_nothing() -> None:
    assert render(Plot("x", "y", ())) == ""
