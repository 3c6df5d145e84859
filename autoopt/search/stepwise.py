"""A search in the hands of a script: one point at a time, without a run. Light."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoopt.metrics import Objective
from autoopt.search.factory import create_study
from autoopt.search.losses import feasible, rank_key
from autoopt.search.trial import ChainSpace, Cost, Feedback, Proposal, Trial
from autoopt.spec.search import SearchConfig


@dataclass(frozen=True)
class Step:
    """What to do next: run the nodes in `todo`, in order, on the model `start`.

    `done`: the nodes whose result `start` is, with the same settings; empty where `start` is the source model.
    """

    proposal: Proposal
    start: str
    done: tuple[str, ...]
    todo: tuple[str, ...]


@dataclass
class StepwiseStudy:
    """Suggests points and takes reports; remembers models made on the way, so that shared beginnings run once.

    `suggest` and `report` speak of points only; `next_step` and `record_feedback` of models too. Both may be mixed.
    """

    chains: Sequence[ChainSpace]
    objectives: Sequence[Objective]
    config: SearchConfig = field(default_factory=SearchConfig)
    source: str = "source"
    cost: Cost | None = None

    def __post_init__(self) -> None:
        self._search = create_study(self.config, self.chains, self.objectives, cost=self.cost)
        self._models: dict[str, str] = {}

    def suggest(self) -> Proposal | None:
        """The next point to try. None: the search is over (`finished` says why) or waits for a report."""
        return next(iter(self._search.ask(1)), None)

    def report(
        self,
        proposal: Proposal,
        values: Mapping[str, float] | None = None,
        *,
        violation: float = 0.0,
        failed: bool = False,
    ) -> None:
        """What a suggested point gave: metric values, how far constraints are broken, or that it failed.

        Raises:
            ValueError: never suggested, or reported before.
        """
        self._search.tell(proposal.number, Feedback(dict(values or {}), violation, failed or not values))

    def next_step(self) -> Step | None:
        """The next point, with the model from which to start; None as for `suggest`."""
        proposal = self.suggest()
        if proposal is None:
            return None
        nodes = self._nodes(proposal)
        for length in range(len(nodes), 0, -1):
            model = self._models.get(self._search.history.key(proposal.chain, proposal.point, nodes[length - 1]))
            if model is not None:
                return Step(proposal, model, nodes[:length], nodes[length:])
        return Step(proposal, self.source, (), nodes)

    def record_feedback(
        self,
        step: Step,
        values: Mapping[str, float] | None = None,
        *,
        models: Mapping[str, str] | None = None,
        violation: float = 0.0,
        failed: bool = False,
    ) -> None:
        """What a step gave, and the `models` it made by node id, for later steps to start from.

        Raises:
            ValueError: never asked, reported before, or models of nodes that are not of this step.
        """
        nodes = self._nodes(step.proposal)
        for node in models or {}:
            if node not in nodes:
                raise ValueError(f"{node} is no node of this step")
        self.report(step.proposal, values, violation=violation, failed=failed)
        for node, model in (models or {}).items():
            self._models[self._search.history.key(step.proposal.chain, step.proposal.point, node)] = model

    @property
    def finished(self) -> str | None:
        return self._search.finished

    @property
    def trials(self) -> Sequence[Trial]:
        return self._search.trials

    @property
    def best(self) -> Trial | None:
        """The best whole chain that respects the constraints, by the objectives in order; None where there is none."""
        good = [t for t in self.trials if t.proposal.upto is None and t.feedback is not None and feasible(t.feedback)]
        return min(good, key=lambda t: rank_key(t.feedback, self.objectives), default=None)

    def _nodes(self, proposal: Proposal) -> tuple[str, ...]:
        nodes = self._search.history.by_id[proposal.chain].nodes
        return nodes if proposal.upto is None else nodes[: nodes.index(proposal.upto) + 1]
