"""The measurements of one candidate, and the verdicts of the constraints on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from autoopt.errors import one_line
from autoopt.json_codec import from_json
from autoopt.measure.constraints import Observation, Verdict, judge
from autoopt.measure.request import MeasureReply
from autoopt.metrics import Estimate, Metric, significant
from autoopt.outcome import Outcome
from autoopt.problem.problem import Goal
from autoopt.store import EvaluationRecord


@dataclass
class Measurements:
    """The measurements of one candidate, and what the constraints say about them."""

    metrics: dict[str, Estimate] = field(default_factory=dict)
    ratios: dict[str, Estimate] = field(default_factory=dict)
    source: dict[str, Estimate] = field(default_factory=dict)
    """Metrics of the source model, measured beside the candidate."""
    drops: dict[str, Estimate] = field(default_factory=dict)
    """Paired intervals of the drop against the source, by metric."""
    resolutions: dict[str, float] = field(default_factory=dict)
    """The smallest drop that the data can confirm, by metric."""
    details: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """Details of the measurement, by meter."""
    outcome: Outcome = Outcome.OK
    message: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Keys of the evaluations."""
    transient: bool = False
    """True for a failure whose cause may lie outside the candidate."""
    executed: int = 0
    """Number of evaluations that were measured rather than looked up."""
    disturbed: bool = False
    """True if another process used the machine while a latency was measured."""
    too_slow: bool = False
    """True if the candidate was dropped for its latency."""

    @staticmethod
    def of(records: Iterable[EvaluationRecord]) -> Measurements:
        """The measurements in these records together."""
        measurements = Measurements()
        for record in records:
            measurements.add(record)
        return measurements

    def add(self, record: EvaluationRecord) -> None:
        """Add the figures of one evaluation, or its failure."""
        self.keys.append(record.key)
        if not record.outcome.good:
            self.outcome = record.outcome
            self.message = f"{record.meter}: {record.message}"
            self.transient = record.transient
            return
        self.metrics.update(record.metrics)
        self.ratios.update(record.ratios)
        self.source.update(record.source_metrics)
        reply = MeasureReply(details=record.details)
        self.drops.update(reply.drops)
        self.resolutions.update(reply.resolutions)
        self.details[record.meter] = record.details
        self.disturbed |= record.disturbed

    def judge(self, goal: Goal, names: Collection[str]) -> None:
        """Judge the constraints on these metrics."""
        for constraint in goal.constraints:
            name = constraint.metric
            if name in names and name in self.metrics:
                observation = Observation(
                    self.metrics[name],
                    self.source.get(name),
                    self.ratios.get(name),
                    self.drops.get(name),
                    self.resolutions.get(name, 0.0),
                )
                verdict = judge(constraint, goal.metric(name), observation)
                if verdict.status != "holds":
                    verdict = replace(verdict, reason=verdict.reason + self._least_faithful(goal.metric(name)))
                self.verdicts.append(verdict)

    def _least_faithful(self, metric: Metric) -> str:
        """Name the output of several with the worst value of a metric that compares outputs, as the end of a reason."""
        outputs = self.details.get("fidelity", {}).get("outputs", {})
        values: dict[str, float] = {}
        for output, estimates in from_json(dict[str, dict[str, Estimate]], outputs).items():
            if metric.name in estimates:
                values[output] = estimates[metric.name].value
        if len(values) < 2:
            return ""
        worst = min if metric.direction == "maximize" else max
        output = worst(values, key=values.__getitem__)
        return f"; least faithful of {len(values)} outputs: {one_line(output)}, {significant(values[output], 3)}"

    @property
    def violation(self) -> float:
        """The largest violation of a constraint; feasible if <= 0."""
        return max((verdict.violation for verdict in self.verdicts), default=0.0)

    def is_settled(self, *, screened: bool) -> bool:
        """True if the candidate breaks a constraint, so that further measurements are of no use.

        A search also measures a candidate that may break the constraint by chance: its latency tells of its
        neighbours, and one of those may keep the constraint.
        """
        if screened:
            return any(verdict.status == "fails" for verdict in self.verdicts)
        return self.violation > 0

    @property
    def worst(self) -> str:
        """The reason of the constraint with the largest violation; empty without constraints."""
        if not self.verdicts:
            return ""
        return max(self.verdicts, key=lambda verdict: verdict.violation).reason

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of the constraints that fail or are uncertain.

        A bound that the data cannot decide for any candidate is no reason against this one; a note of the run says so.
        """
        doubtful = [verdict for verdict in self.verdicts if verdict.status != "holds" and not verdict.is_data_limited]
        return tuple(verdict.reason for verdict in doubtful)

    @property
    def unsure(self) -> tuple[str, ...]:
        """Metrics that meet their constraints by the point estimate, but not for certain; see `reasons`."""
        unsure = [one for one in self.verdicts if one.status == "uncertain" and one.violation <= 0]
        return tuple(verdict.metric for verdict in unsure if not verdict.is_data_limited)
