"""The passes of a model and their settings in short words: `fold -> static(Percentile, per_channel)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from autoopt.errors import one_line
from autoopt.report.words.formatting import plural
from autoopt.space import Point

ARROW = " -> "
OFF: Final[Sequence[object]] = (None, False, "none", [], {})
"""Values that leave something off or to the runtime."""


def steps_text(chain: str, point: Point, width: int = 0) -> str:
    """The nodes of a chain, each with the searched settings that are on.

    A text longer than `width` characters (0: any length) loses passes at its beginning, because chains differ at their
    ends, then settings.
    """
    nodes = chain.split(ARROW)
    steps = []
    for node in nodes:
        values = sorted(point.get(node, {}).items())
        settings = [_setting(name, value) for name, value in values if value not in OFF]
        steps.append(f"{node}({', '.join(settings)})" if settings else node)
    text = one_line(ARROW.join(steps))
    for parts in _shorter(nodes, steps):
        if not width or len(text) <= width:
            return text
        text = one_line(ARROW.join(parts))
        if len(parts) < len(nodes):
            text = f"… {text}"
    return tail(text, width)


def _shorter(nodes: Sequence[str], steps: Sequence[str]) -> Iterator[Sequence[str]]:
    """The last passes, fewer and fewer, down to the last one without its settings."""
    for first in range(1, len(steps) - 1):
        yield steps[first:]
    yield [*nodes[-2:-1], steps[-1]]
    yield nodes[-2:]
    yield nodes[-1:]


def _setting(name: str, value: object) -> str:
    if value is True:
        return name
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "+".join(map(str, value))
    if name == "intra_op_num_threads" and isinstance(value, int):
        return plural(value, "thread")
    return f"{name}={value}"


def tail(text: str, width: int) -> str:
    """The end of a text that fits, because chains differ at their ends; the whole text for a width of 0."""
    if not width:
        return text
    width = max(width, 10)
    if len(text) <= width:
        return text
    return f"…{text[len(text) - width + 1 :]}"
