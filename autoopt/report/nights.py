"""One model tonight against the nights before: better, worse, or inside the noise, and what may be the cause.

Entries are the JSON documents that a sweep keeps of each model; see `autoopt.engine.sweeps.sweep`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from autoopt.metrics import METRICS, Estimate
from autoopt.report.compare import Difference, compare
from autoopt.report.document import RunDocument, estimate, kind

Entry = Mapping[str, Any]
DRIFT: Final = 0.25
"""How far the source's own latency may go from that of earlier nights before it counts as a change: a machine has
good and bad nights, and only ratios are paired."""
NIGHTS: Final = 7
"""How many earlier nights say how far a night may go."""
GOOD: Final = "ok"
MISSING: Final = "missing"
"""Status of a model that the last sweep had, and its verdict."""


def compare_entry(entry: Entry, earlier: Sequence[tuple[str, Entry]]) -> dict[str, Any]:
    """`entry` against the same model's entries of good sweeps, newest first, each with its sweep's id.

    Returns:
        `with` (sweep id, empty where there is none), `verdict` (`new`, `same`, `better`, `worse`, `fails`, `missing`,
        `works again`), `changes` (what moved beyond its interval), `causes` (changes of the environment) and
        `other_inputs` (model, DAG, data that are not those of that sweep).
    """
    missing = entry["status"] == MISSING
    if missing or not earlier:
        verdict, sweep = MISSING if missing else "new", earlier[0][0] if earlier else ""
        return {"with": sweep, "verdict": verdict, "changes": [], "causes": [], "other_inputs": []}
    sweep, last = earlier[0]
    changes: list[dict[str, Any]] = []
    works, worked = entry["status"] == GOOD, last["status"] == GOOD
    if works and worked:
        changes = [*_best(entry, last), *_last_best(entry, last), *_source(entry, [e for _, e in earlier])]
        verdict = _verdict(changes, _objectives(entry))
    elif works or worked:
        verdict = "works again" if works else "fails"
    else:
        verdict = "same"
    moved = verdict not in ("same", "new")
    causes = differences(last.get("environment") or {}, entry.get("environment") or {}) if moved else []
    known = moved and last.get("inputs") and entry.get("inputs")
    other = differences(last["inputs"], entry["inputs"]) if known else []
    return {"with": sweep, "verdict": verdict, "changes": changes, "causes": causes, "other_inputs": other}


def regressed(compared: Mapping[str, Any]) -> bool:
    """Whether a comparison is one to wake somebody up for."""
    return compared["verdict"] in ("worse", "fails", MISSING)


def _objectives(entry: Entry) -> tuple[str, ...]:
    return tuple(o["metric"] for o in entry.get("objectives") or ()) or ("latency_p50",)


def _verdict(changes: Sequence[Mapping[str, Any]], objectives: Sequence[str]) -> str:
    """The objectives decide; a metric that is none makes it worse only where no objective gained."""
    verdicts = {c["verdict"] for c in changes if c["metric"] in objectives}
    if "worse" in verdicts:
        return "worse"
    if "better" in verdicts:
        return "better"
    others = {c["verdict"] for c in changes}
    return "worse" if "worse" in others else "better" if "better" in others else "same"


def _best(entry: Entry, last: Entry) -> list[dict[str, Any]]:
    """Tonight's best model against the last good night's."""
    compared = compare(RunDocument.from_json(last), RunDocument.from_json(entry))
    return [_change("best model", d) for d in compared.differences if d.verdict in ("better", "worse")]


def _last_best(entry: Entry, last: Entry) -> list[dict[str, Any]]:
    """The last good night's best model measured tonight, where tonight has another one."""
    again = entry.get("last_best")
    if not again:
        return []
    document = {**entry, "best": again}
    compared = compare(RunDocument.from_json(last), RunDocument.from_json(document))
    return [_change("last best model", d) for d in compared.differences if d.verdict in ("better", "worse")]


def _source(entry: Entry, earlier: Sequence[Entry]) -> list[dict[str, Any]]:
    """The source model's own latency, against the span of the nights before."""
    changes = []
    for metric in _objectives(entry):
        now = _interval(entry, metric)
        before = [found for e in earlier[:NIGHTS] if (found := _interval(e, metric)) is not None]
        if now is None or not before or kind(metric) != "latency":
            continue
        low, high = min(e.low for e in before) / (1 + DRIFT), max(e.high for e in before) * (1 + DRIFT)
        if now.low > high or now.high < low:
            more = now.low > high
            worse = more == (METRICS[metric].direction == "minimize")
            verdict = "worse" if worse else "better"
            span = Estimate(before[0].value, low, high)
            changes.append(_said("source model", metric, span, now, False, verdict))
    return changes


def _interval(entry: Entry, metric: str) -> Estimate | None:
    baseline = entry.get("baseline") or {}
    value = (baseline.get("metrics") or {}).get(metric)
    if value is None:
        return None
    bounds = (baseline.get("intervals") or {}).get(metric)
    low, high = (estimate(bounds).low, estimate(bounds).high) if bounds else (value, value)
    return Estimate(value, low, high) if all(map(math.isfinite, (value, low, high))) else None


def _change(what: str, difference: Difference) -> dict[str, Any]:
    d = difference
    return _said(what, d.metric, d.first, d.second, d.as_ratio, d.verdict)


def _said(
    what: str, metric: str, before: Estimate | None, after: Estimate | None, as_ratio: bool, verdict: str
) -> dict[str, Any]:
    return {
        "what": what,
        "metric": metric,
        "before": None if before is None else vars(before),
        "after": None if after is None else vars(after),
        "as_ratio": as_ratio,
        "verdict": verdict,
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What is another one than before: `libraries.onnxruntime 1.31.0 -> 1.31.1`."""
    old, new = dict(_flat(before)), dict(_flat(after))
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    return [f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}" for name in names]


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found
