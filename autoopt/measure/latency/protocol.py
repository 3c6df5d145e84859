"""A latency measurement: interleaved blocks of source and candidate, in stages, until it is certain."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from autoopt.errors import InputError
from autoopt.measure.intervals.replicas import FEW, effective, interval
from autoopt.measure.latency.pairs import Pair, disturbance, kept
from autoopt.measure.latency.subjects import LEAD, LEAD_LONG, Subject
from autoopt.metrics import Estimate

Stopped: TypeAlias = Literal["narrow", "no narrower", "worse", "time", "max repeats"]
GAIN = 0.2
"""By how much of its width an interval that will not become narrow enough has to shrink until the time is up, for
going on to make sense. Where sessions differ, more repeats in them do not help: of a model of 0.06 ms on a shared
machine the interval was about as wide after 24 pairs of blocks as after 180."""
BEYOND = 0.008
"""Half-width, in logarithms, of what differs from process to process and no session of one process shows: the ratio
of two models of 0.1 ms, measured for 3 s in each of 20 processes, spread by 0.3 %. The interval is to hold in another
process, and both the estimate and that process have this error: 1.96 * 0.3 % * sqrt(2)."""
BEYOND_FEW = 0.013
"""The same where there were too few sessions to see how they differ."""
DRIFT, SPREAD = 0.1, 0.3
"""Drift and spread of the source's blocks, relative, above which the machine counts as disturbed."""


@dataclass(frozen=True)
class Protocol:
    """How long and how exactly to measure. The staged protocol is the default; `fixed` always uses all its time."""

    seconds: float = 5.0
    """Time for everything: sessions, warm-up, blocks."""
    target_width: float = 0.04
    """Width of the interval of the p50 ratio, relative to it, at which it is narrow enough; below 0.017 it never is."""
    replicas: int = 8
    """Sessions of each model, at most; fewer where they are dear to make or to run."""
    max_pairs: int = 4000
    incumbent_ratio: float | None = None
    """p50 ratio of the best candidate so far; one that is surely slower than `margin` times it stops early."""
    margin: float = 1.02
    fixed: bool = False
    seed: int = 0

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Protocol:
        """The protocol in a meter's settings; other settings are left alone.

        Raises:
            InputError: a value that makes no sense.
        """
        known = {f.name for f in fields(Protocol)}
        made = Protocol(**{k: v for k, v in settings.items() if k in known and v is not None})
        for name in ("seconds", "target_width", "replicas", "max_pairs", "margin"):
            if not isinstance(getattr(made, name), int | float) or getattr(made, name) <= 0:
                raise InputError(f"measurement setting {name!r} must be a number above 0")
        return made


@dataclass
class Measurement:
    """One measurement under way. `source` is None where there is nothing to compare with."""

    candidate: Subject
    source: Subject | None
    protocol: Protocol
    pairs: list[Pair] = field(default_factory=list)
    """In time order."""
    replicas: int = 1
    stopped: Stopped = "time"
    seconds: float = 0.0

    def run(self) -> Measurement:
        """Measure until the protocol is satisfied."""
        rng = random.Random(self.protocol.seed)
        began = time.monotonic()
        with _no_garbage_collection():
            for index in self._schedule(began):
                self._pair(index, rng)
                self.seconds = time.monotonic() - began
                reason = self._reason()
                if reason is not None:
                    self.stopped = reason
                    break
        return self

    def _schedule(self, began: float) -> Iterator[int]:
        """Replica numbers: a new pair of sessions each in the first round, then all of them in turn."""
        self._add(0.04)
        yield 0
        self.replicas = self._affordable(time.monotonic() - began)
        for index in range(1, self.replicas):
            self._add(0.01)
            yield index
        while True:
            yield from range(self.replicas)

    def _subjects(self) -> list[Subject]:
        return [self.candidate] if self.source is None else [self.candidate, self.source]

    def _add(self, share: float) -> None:
        subjects = self._subjects()
        if len(self.candidate.replicas) % 2:
            subjects.reverse()
        for subject in subjects:
            subject.add(share * self.protocol.seconds * 1e9)

    def _affordable(self, spent: float) -> int:
        """How many replicas there is time for: each needs its sessions and three pairs."""
        cold = (
            sum(subject.replicas[0].cold_start + subject.replicas[0].first_inference for subject in self._subjects())
            / 1e9
        )
        first = [subject.replicas[0] for subject in self._subjects()]
        pair = sum(float(r.blocks[0].sum()) + max(LEAD, min(5 * r.warm.time, LEAD_LONG)) for r in first) / 1e9
        left = max(0.0, self.protocol.seconds - spent)
        return int(
            min(self.protocol.replicas, 1 + 0.5 * left / (cold + 0.02 * self.protocol.seconds), 1 + left / (3 * pair))
        )

    def _pair(self, index: int, rng: random.Random) -> None:
        subjects = self._subjects()
        rng.shuffle(subjects)
        timed = {id(subject): subject.time_block(index) for subject in subjects}
        mine = timed[id(self.candidate)]
        base = 1.0 if self.source is None else float(np.median(timed[id(self.source)].times))
        self.pairs.append(Pair(index, float(np.median(mine.times)), base, max(b.away for b in timed.values())))

    def kept(self) -> list[int]:
        """Numbers of the pairs that count, in time order."""
        return kept(self.pairs)

    def units(self) -> list[float]:
        """Logarithms of independent values: the median of each replica's pairs where there are enough replicas and
        all were measured, else each pair."""
        chosen = [self.pairs[n] for n in self.kept()]
        logs = [math.log(p.mine / p.base) for p in chosen]
        by_replica: dict[int, list[float]] = {}
        for pair, log in zip(chosen, logs, strict=True):
            by_replica.setdefault(pair.replica, []).append(log)
        if self.by_replica:
            return [float(np.median(values)) for values in by_replica.values()]
        return logs

    @property
    def by_replica(self) -> bool:
        """Whether the replicas are the independent units, rather than the pairs."""
        return self.replicas >= FEW and len({p.replica for p in self.pairs}) == self.replicas

    def estimate(self) -> Estimate:
        """Ratio of the block medians, candidate / source; without a source the median itself, in ns."""
        return interval(self.units(), beyond=BEYOND if self.replicas >= FEW else BEYOND_FEW, seed=self.protocol.seed)

    def _reason(self) -> Stopped | None:
        """Why to stop now, or None."""
        count, protocol = len(self.pairs), self.protocol
        if self.seconds > protocol.seconds and (count >= 3 or self.seconds > 2 * protocol.seconds):
            return "time"
        if count >= protocol.max_pairs:
            return "max repeats"
        if protocol.fixed or count < 3 or not (count <= self.replicas or count % max(self.replicas, FEW) == 0):
            return None
        now = self.estimate()
        incumbent = protocol.incumbent_ratio if self.source is not None else None
        if incumbent is not None and now.low > incumbent * protocol.margin:
            return "worse"
        enough = len(self.kept()) >= max(3 * self.replicas, 12)
        width = (now.high - now.low) / now.value
        if not enough:
            return None
        if width <= protocol.target_width:
            return "narrow"
        shrunk = self._shrinks()
        return "no narrower" if shrunk > 1 - GAIN and width * shrunk > protocol.target_width else None

    def _shrinks(self) -> float:
        """What will be left of the interval's width when the time is up: the spread between sessions stays, that of the
        pairs within them goes with their number."""
        values: dict[int, list[float]] = {}
        for number in self.kept():
            pair = self.pairs[number]
            values.setdefault(pair.replica, []).append(math.log(pair.mine / pair.base))
        several = [v for v in values.values() if len(v) > 1]
        if not self.by_replica or not several:
            return 0.0
        of_medians = math.pi / 2  # their variance, relative to that of means
        each = sum(map(len, several)) / len(several)
        within = of_medians * float(np.mean([np.var(v, ddof=1) for v in several])) / each
        seen = float(np.var([np.median(v) for v in several], ddof=1)) if len(several) > 1 else 0.0
        stays = max(0.0, seen - within)
        longer = max(1.0, self.protocol.seconds / max(self.seconds, 1e-9))
        return math.sqrt((stays + within / longer) / (stays + within)) if stays + within > 0 else 1.0

    def summary(self) -> dict[str, Any]:
        """What to know of how it went."""
        reference = self.source or self.candidate
        bases = self._bases()
        quarter = max(1, len(bases) // 4)
        low, middle, high = np.quantile(bases, [0.1, 0.5, 0.9])
        chosen = [self.pairs[n] for n in self.kept()]
        return {
            "stopped": self.stopped,
            "seconds": round(self.seconds, 4),
            "pairs": len(self.pairs),
            "set_aside": len(self.pairs) - len(chosen),
            "calm": round(sum(u <= 1 for u in disturbance(self.pairs)) / len(self.pairs), 3),
            "replicas": len(self.candidate.replicas),
            "repeats": self.candidate.repeats,
            "source_repeats": self.source.repeats if self.source else 0,
            "effective_repeats": round(effective([math.log(p.mine / p.base) for p in chosen]), 1),
            "warm_up_calls": self.candidate.replicas[0].warm.calls,
            "warm_up_settled": all(r.warm.settled for r in self.candidate.replicas),
            "source_warm_up_calls": reference.replicas[0].warm.calls,
            "baseline_drift": round(float(np.median(bases[-quarter:]) / np.median(bases[:quarter]) - 1), 4),
            "baseline_spread": round(float((high - low) / middle), 4),
        }

    def _bases(self) -> Any:
        """The source's blocks in time order, each relative to its replica's median: replicas have inputs of their
        own."""
        found = [(p.replica, p.base if self.source else p.mine) for p in self.pairs]
        middle = {r: float(np.median([base for replica, base in found if replica == r])) for r, _ in found}
        return np.array([base / middle[replica] for replica, base in found])

    @property
    def disturbed(self) -> bool:
        """Whether the source's own blocks say that the machine changed its pace meanwhile (load, heat, frequency), or
        most blocks were interrupted."""
        found = self.summary()
        paced = abs(found["baseline_drift"]) <= DRIFT and found["baseline_spread"] <= SPREAD
        return not paced or bool(found["calm"] < 0.5)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
