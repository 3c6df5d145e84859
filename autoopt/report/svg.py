"""Plots as inline SVG: points, steps and intervals on one pair of axes, with labels on hover."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 48


@dataclass(frozen=True)
class Mark:
    """A point. `style` is a CSS class: `good`, `bad`, `front`, `source`. `low`, `high`: an interval along x."""

    x: float
    y: float
    style: str = "good"
    label: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Plot:
    """Marks and a stepped line, both in data units."""

    x_title: str
    y_title: str
    marks: tuple[Mark, ...]
    steps: tuple[tuple[float, float], ...] = ()


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover `low..high`, about `count` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, count)
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(s * scale for s in (1, 2, 2.5, 5, 10) if s * scale >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def render(plot: Plot) -> str:
    """The plot as an `<svg>` element; an empty string where there is nothing to draw."""
    if not plot.marks and not plot.steps:
        return ""
    xs, ys = [], []
    for mark in plot.marks:
        xs += [x for x in (mark.x, mark.low, mark.high) if x is not None]
        ys.append(mark.y)
    for x, y in plot.steps:
        xs.append(x)
        ys.append(y)
    axis = _Axes(_span(xs), _span(ys))
    name = escape(f"{plot.y_title} over {plot.x_title}")
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">',
        *_grid(axis),
        f'<text class="title" x="{WIDTH / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(plot.x_title)}</text>',
        f'<text class="title" x="14" y="{HEIGHT / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {HEIGHT / 2:.0f})">{escape(plot.y_title)}</text>',
        *_steps(axis, plot.steps),
        *(_mark(axis, mark) for mark in plot.marks),
        "</svg>",
    ]
    return "\n".join(parts)


PICTURE_STYLE = """
text { font: 11px sans-serif; fill: #333; } .grid { stroke: #ddd; }
.line { fill: none; stroke: #2a7f62; stroke-width: 2; } .bar { stroke: #333; opacity: .4; }
circle.good { fill: #2a7f62; } circle.bad { fill: none; stroke: #b0413e; stroke-width: 1.5; }
circle.front { fill: #d08700; } circle.source { fill: #333; }
"""


def picture(plot: Plot) -> str:
    """The plot as an SVG file of its own, on white; an empty string where there is nothing to draw."""
    drawn = render(plot)
    if not drawn:
        return ""
    head, _, rest = drawn.partition(">")
    size = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
    head = head.replace("<svg", f"<svg {size}", 1)
    return f'{head}><style>{PICTURE_STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{rest}'


@dataclass(frozen=True)
class _Axes:
    x_span: tuple[float, float]
    y_span: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_span
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_span
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def _grid(axis: _Axes) -> list[str]:
    lines = []
    for value in ticks(*axis.x_span, 8):
        x = axis.x(value)
        lines.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
    for value in ticks(*axis.y_span):
        y = axis.y(value)
        lines.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    return lines


def _steps(axis: _Axes, steps: Sequence[tuple[float, float]]) -> list[str]:
    if not steps:
        return []
    path = [f"M{axis.x(steps[0][0]):.1f} {axis.y(steps[0][1]):.1f}"]
    path += [f"H{axis.x(x):.1f}V{axis.y(y):.1f}" for x, y in steps[1:]]
    return [f'<path class="line" d="{"".join(path)}"/>']


def _mark(axis: _Axes, mark: Mark) -> str:
    x, y = axis.x(mark.x), axis.y(mark.y)
    bar = ""
    if mark.low is not None and mark.high is not None and mark.high > mark.low:
        ends = f'x1="{axis.x(mark.low):.1f}" x2="{axis.x(mark.high):.1f}"'
        bar = f'<line class="{mark.style} bar" {ends} y1="{y:.1f}" y2="{y:.1f}"/>'
    title = ""
    if mark.label:
        title = f"<title>{escape(mark.label)}</title>"
    return f'<g>{bar}<circle class="{mark.style}" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle></g>'
