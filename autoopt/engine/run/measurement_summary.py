"""How the figures of a model came about: what the run document says of its measurements as `measured`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from autoopt.engine.run.confirm import Confirmed
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.evaluations import Measured
from autoopt.metrics import Estimate

BUSY = "the machine was busy while this was measured"
Json: TypeAlias = Mapping[str, Any]


def account_of(ctx: RunContext, keys: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`account` from the evaluations of these keys: of several latencies the first is the trial's own, the others are
    the rounds that took its place."""
    known = ctx.store.results.evaluations(keys)
    records = [known[key] for key in dict.fromkeys(keys) if key in known]
    latencies = [r for r in records if r.meter == "latency" and r.outcome.good]
    return account(Measured.of(records), Confirmed([Measured.of([r]) for r in latencies[1:] or latencies]))


def account(measured: Measured, rounds: Confirmed) -> tuple[dict[str, Any], tuple[str, ...]]:
    """How a candidate was measured, and what to be warned of.

    Args:
        measured: all that was measured.
        rounds: the latencies that its figures come from.

    Returns:
        A mapping with, where latencies were measured, `rounds` and how many of them were `disturbed_rounds`; of those
        that count (`counted_rounds`): `stopped` (how often for which reason), `pairs` of blocks, `effective_repeats`,
        `replicas`, `threads`, `affinity` (numbers of the `cores` that it could run on), `batch_size`, `pace` (of the
        source, relative to what it took when the machine was free), `throughput` and `profiles` where they were asked
        for; and `items` and `outputs` of the fidelity: every metric of every output.
    """
    fidelity = measured.details.get("fidelity", {})
    found = _latency(rounds) if rounds.rounds else {}
    found |= {name: fidelity[name] for name in ("items", "outputs") if name in fidelity}
    return found, (BUSY,) if any(r.disturbed for r in rounds.counting()) else ()


def _latency(rounds: Confirmed) -> dict[str, Any]:
    counted: list[Json] = [r.details["latency"] for r in rounds.counting()]
    parts: list[Mapping[str, Json]] = [d.get("profiles") or {"": d} for d in counted]
    courses = [course for part in parts for course in part.values()]
    first = courses[0]
    machine = first.get("machine") or {}
    paces = [course["pace"] for course in courses if course.get("pace")]
    found = {
        "rounds": len(rounds.rounds),
        "disturbed_rounds": sum(r.disturbed for r in rounds.rounds),
        "counted_rounds": len(counted),
        "stopped": dict(Counter(str(course.get("stopped", "")) for course in courses)),
        "pairs": sum(int(course.get("pairs", 0)) for course in courses),
        "effective_repeats": round(sum(float(course.get("effective_repeats", 0)) for course in courses), 1),
        "replicas": first.get("replicas"),
        "threads": first.get("threads"),
        "affinity": machine.get("affinity"),
        "cores": machine.get("cores"),
        "batch_size": first.get("batch_size"),
        "pace": max(paces, default=None),
        "throughput": _throughput(parts),
        "profiles": {
            name: {
                what: _together([part[name][what] for part in parts if name in part]) for what in ("metrics", "ratios")
            }
            for name in parts[0]
            if name
        },
    }
    return {name: value for name, value in found.items() if value not in (None, [], {})}


def _throughput(parts: Sequence[Mapping[str, Json]]) -> list[dict[str, Any]]:
    """One row for each profile, batch size and concurrency; `candidate`, `source` and `ratio`, or why `refused`."""
    rows: dict[tuple[str, int, int], list[Json]] = {}
    for part in parts:
        for profile, course in part.items():
            for row in course.get("throughput", ()):
                rows.setdefault((profile, row["batch_size"], row["concurrency"]), []).append(row)
    found = []
    for (profile, batch, concurrency), measured in rows.items():
        refused = next((row["refused"] for row in measured if "refused" in row), None)
        figures = _together([{n: row[n] for n in ("candidate", "source", "ratio") if n in row} for row in measured])
        found.append(
            {
                **({"profile": profile} if profile else {}),
                "batch_size": batch,
                "concurrency": concurrency,
                **(figures if refused is None else {"refused": refused}),
            }
        )
    return found


def _together(measured: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Estimates by name of several measurements as one."""
    if len(measured) == 1:
        return dict(measured[0])
    from autoopt.measure.intervals.replicas import together  # imports numpy

    names = [name for name in measured[0] if all(name in one for one in measured)]
    return {name: asdict(together([Estimate(**one[name]) for one in measured])) for name in names}
