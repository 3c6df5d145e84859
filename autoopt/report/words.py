"""Numbers and settings as people read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autoopt.errors import one_line
from autoopt.metrics import Estimate, known_metric


def metric_text(name: str, value: float) -> str:
    """A metric's value with its unit: `0.178 ms`, `409 kB`, `0.9950`."""
    metric = known_metric(name)
    unit = metric.unit if metric else ""
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
    """Parameters by node, in the order of their names: `session: ...; static: per_channel=true, weight_type=QInt8`."""
    nodes = []
    for node, values in sorted(params.items()):
        if values:
            shown = ", ".join(f"{name}={value_text(value)}" for name, value in sorted(values.items()))
            nodes.append(f"{one_line(node)}: {shown}")
    return "; ".join(nodes)


def counts_text(counts: Mapping[str, int]) -> str:
    """`12: 10 ok, 2 refused` from `{"total": 12, "ok": 10, "refused": 2, ...}`; ok first, zeros left out.

    `infeasible` says how many of the ok ones break a constraint; they are named apart.
    """
    broken = counts.get("infeasible", 0)
    breaks = "breaks a constraint" if broken == 1 else "break a constraint"
    apart = {**counts, "ok": counts.get("ok", 0) - broken, breaks: broken, "infeasible": 0}
    named = sorted(apart.items(), key=lambda item: item[0] != "ok")
    parts = [f"{number} {one_line(name)}" for name, number in named if name != "total" and number]
    total = counts.get("total", sum(counts.values()) - broken)
    return f"{total}" + (f": {', '.join(parts)}" if parts else "")


def seconds_text(seconds: Mapping[str, float]) -> str:
    """`41.2 s (search 30.1, prefect 9.8)`, the longest first."""
    longest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{one_line(name)} {value:.1f}" for name, value in longest if name != "total" and value >= 0.05]
    total = seconds.get("total", sum(seconds.values()))
    return f"{total:.1f} s" + (f" ({', '.join(parts)})" if parts else "")


def short(identity: str) -> str:
    """The first characters of a digest or an id."""
    return one_line(identity)[:12]
