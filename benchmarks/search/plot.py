"""The curves as an SVG, drawn by hand: best so far against evaluations, all strategies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

PANEL, HEIGHT = 430, 400
LEFT, RIGHT, TOP, BOTTOM, KEY = 58, 14, 62, 48, 225
FONT = 'font-family="sans-serif" font-size="12"'
COLOURS = ("#8c8c8c", "#b07aa1", "#9c755f", "#edc948", "#59a14f", "#4e79a7", "#e15759", "#f28e2b")


@dataclass(frozen=True)
class Panel:
    """One line for each strategy over trials 1, 2, ...; values beyond `top` or `bottom` are drawn at the edge. Without
    a `top`, it is what half of the lines are below after two trials."""

    title: str
    lines: Mapping[str, Sequence[float]]
    top: float | None = None
    bottom: float = 1.0

    @property
    def highest(self) -> float:
        if self.top is not None:
            return self.top
        second = sorted(values[min(1, len(values) - 1)] for values in self.lines.values())
        return 1 + math.ceil(10 * (second[len(second) // 2] - 1)) / 10


def draw(title: str, y_label: str, panels: Sequence[Panel]) -> str:
    """The panels side by side, with one key on the right."""
    width = PANEL * len(panels) + KEY
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" {FONT}>',
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
        _text(title, LEFT, 22, "start", 'font-size="15" font-weight="bold"'),
        _text(y_label, 0, 0, "middle", f'transform="translate(16 {TOP + (HEIGHT - TOP - BOTTOM) / 2}) rotate(-90)"'),
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, PANEL * place, colours)
    for place, name in enumerate(names):
        x, y = PANEL * len(panels) + 10, TOP + 12 + 20 * place
        parts.append(_line(x, x + 24, y, colours[name], _width(name)))
        parts.append(_text(name, x + 30, y + 4, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, start: float, colours: Mapping[str, str]) -> list[str]:
    length = max(len(values) for values in panel.lines.values())
    inner_width, inner_height = PANEL - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    top, bottom = panel.highest, panel.bottom

    def x(trial: int) -> float:
        return start + LEFT + inner_width * (trial - 1) / max(1, length - 1)

    def y(value: float) -> float:
        return TOP + inner_height * (top - min(max(value, bottom), top)) / (top - bottom)

    parts = [
        _text(panel.title, start + LEFT, TOP - 14, "start", 'font-weight="bold"'),
        _text("evaluations", start + LEFT + inner_width / 2, HEIGHT - 12, "middle"),
    ]
    for step in range(6):
        value = bottom + (top - bottom) * step / 5
        parts.append(_line(start + LEFT, start + LEFT + inner_width, y(value), "#e5e5e5", 1))
        parts.append(_text(f"{value:.2f}", start + LEFT - 6, y(value) + 4, "end"))
    parts += [_text(str(max(1, n)), x(max(1, n)), HEIGHT - BOTTOM + 16, "middle") for n in range(0, length + 1, 10)]
    for name, values in panel.lines.items():
        points = " ".join(f"{x(i + 1):.1f},{y(v):.1f}" for i, v in enumerate(values) if math.isfinite(v))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="{_width(name)}"/>'
        )
    return parts


def _width(name: str) -> float:
    return 3.0 if name == "unified" else 1.6


def _line(x1: float, x2: float, y: float, colour: str, width: float) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def _text(text: str, x: float, y: float, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
