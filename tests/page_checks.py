"""Checks of HTML pages and charts."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from autoopt.report.drawing import Spec

VOID = {"meta", "br", "input", "line", "path", "rect", "circle"}


class Balance(HTMLParser):
    """Fails on a tag that is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Do nothing: it is closed."""

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def is_balanced(html: str) -> bool:
    balance = Balance()
    balance.feed(html)
    return balance.open == []


def needs_nothing_else(html: str) -> bool:
    """True if the page refers to no other file or host; SVG's namespaces are only names."""
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    return re.findall(r'\ssrc=|href="[^#]|@import|url\(|https?://', without_namespaces) == []


def datasets(chart: Spec | None) -> list[list[dict[str, Any]]]:
    """The rows of each layer of a chart, those of layers that share data once."""
    assert chart is not None
    found: list[list[dict[str, Any]]] = []
    pending = [chart]
    for part in pending:
        rows = part.get("data", {}).get("values")
        if rows is not None and rows not in found:
            found.append(rows)
        pending += part.get("layer", ())
    return found
