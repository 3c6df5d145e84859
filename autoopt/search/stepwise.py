"""A study that a script drives one step at a time, without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoopt.metrics import Objective
from autoopt.search.factory import create_study
from autoopt.search.losses import feasible, rank_key
from autoopt.search.trial import ChainSpace, Cost, Feedback, Proposal, Trial, point_key
from autoopt.spec.search import SearchConfig


@dataclass(frozen=True)
class Step:
    """The next step: run the nodes in `todo`, in order, on the model `start`.

    `done` lists the nodes whose result `start` is, with the same settings; empty where `start` is the source model.
    """

    proposal: Proposal
    start: str
    done: tuple[str, ...]
    todo: tuple[str, ...]


@dataclass
class StepwiseStudy:
    """Suggests points, records results, and remembers intermediate models, so that shared beginnings run once."""

    chains: Sequence[ChainSpace]
    objectives: Sequence[Objective]
    config: SearchConfig = field(default_factory=SearchConfig)
    source: str = "source"
    cost: Cost | None = None

    def __post_init__(self) -> None:
        self._study = create_study(self.config, self.chains, self.objectives, cost=self.cost)
        self._models: dict[str, str] = {}

    def next_step(self) -> Step | None:
        """Return the next point with the model to start from.

        None if the search is over (`finished` says why) or waits for the result of an earlier step.
        """
        proposal = next(iter(self._study.ask()), None)
        if proposal is None:
            return None
        nodes = self._nodes(proposal)
        for length in range(len(nodes), 0, -1):
            model = self._models.get(self._model_key(proposal, nodes[length - 1]))
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
        """Record the result of a step, and the `models` it made by node id, for later steps to start from.

        The fields of the result are those of `Feedback`; without `values` the step counts as failed.

        Raises:
            ValueError: the step was never returned, has a result already, or `models` names nodes outside of it.
        """
        nodes = self._nodes(step.proposal)
        for node in models or {}:
            if node not in nodes:
                raise ValueError(f"{node} is not a node of this step")
        self._study.tell(step.proposal.number, Feedback(dict(values or {}), violation, failed or not values))
        for node, model in (models or {}).items():
            self._models[self._model_key(step.proposal, node)] = model

    @property
    def finished(self) -> str | None:
        """The reason why there are no further points, or None."""
        return self._study.finished

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials in the order suggested."""
        return self._study.trials

    @property
    def best(self) -> Trial | None:
        """The best whole chain that meets the constraints, by the objectives in order; None without one."""
        whole = [trial for trial in self.trials if trial.proposal.upto is None and feasible(trial.feedback)]
        return min(whole, key=lambda trial: rank_key(trial.feedback, self.objectives), default=None)

    def _nodes(self, proposal: Proposal) -> tuple[str, ...]:
        (nodes,) = [chain.nodes for chain in self.chains if chain.id == proposal.chain]
        if proposal.upto is None:
            return nodes
        return nodes[: nodes.index(proposal.upto) + 1]

    def _model_key(self, proposal: Proposal, node: str) -> str:
        return point_key(self._nodes(proposal), proposal.point, node)
