"""Numbers and settings as people read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autoopt.errors import one_line
from autoopt.metrics import METRICS, Estimate


def metric_text(name: str, value: float) -> str:
    """A metric's value with its unit: `0.178 ms`, `409 kB`, `0.9950`."""
    unit = METRICS[name].unit if name in METRICS else ""
    if unit == "bytes":
        return bytes_text(value)
    if unit in ("fraction", "1"):
        return f"{value:.4f}"
    number = number_text(value)
    return f"{number} {unit}" if unit not in ("", "output unit", "label unit squared") else number


def number_text(value: float) -> str:
    """About three significant digits, without an exponent where that is readable."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 4
        return f"{value:.{digits}f}"
    return f"{value:.3g}"


def bytes_text(value: float) -> str:
    """Bytes in decimal units: `409 kB`."""
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 100 else f"{size:.3g} {unit}"


def ratio_text(ratio: Estimate) -> str:
    """A ratio with its confidence interval: `0.301x (0.290..0.312)`; without one where it is exact."""
    if ratio.low == ratio.high:
        return f"{ratio.value:.3f}x"
    return f"{ratio.value:.3f}x ({ratio.low:.3f}..{ratio.high:.3f})"


def value_text(value: Any) -> str:
    """A parameter's value as it is written in YAML's flow style."""
    return one_line(value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str))


def params_text(params: Mapping[str, Mapping[str, Any]]) -> str:
    """Parameters by node: `static: per_channel=true, weight_type=QInt8; session: ...`."""
    nodes = []
    for node, values in params.items():
        if values:
            shown = ", ".join(f"{name}={value_text(value)}" for name, value in values.items())
            nodes.append(f"{one_line(node)}: {shown}")
    return "; ".join(nodes)


def counts_text(counts: Mapping[str, int]) -> str:
    """`12: 10 ok, 2 refused` from `{"total": 12, "ok": 10, "refused": 2, ...}`; ok first, zeros left out."""
    named = sorted(counts.items(), key=lambda item: item[0] != "ok")
    parts = [f"{number} {one_line(name)}" for name, number in named if name != "total" and number]
    total = counts.get("total", sum(counts.values()))
    return f"{total}" + (f": {', '.join(parts)}" if parts else "")


def seconds_text(seconds: Mapping[str, float]) -> str:
    """`41.2 s (search 30.1, prefect 9.8)`."""
    parts = [f"{one_line(name)} {value:.1f}" for name, value in seconds.items() if name != "total" and value >= 0.05]
    total = seconds.get("total", sum(seconds.values()))
    return f"{total:.1f} s" + (f" ({', '.join(parts)})" if parts else "")


def short(identity: str) -> str:
    """The first characters of a digest or an id."""
    return one_line(identity)[:12]
