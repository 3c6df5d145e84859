"""Spaces, measurements and a driver that the search tests share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from random import Random

from autoopt.metrics import Objective
from autoopt.search import ChainSpace, Feedback, Proposal, Study
from autoopt.space import IGNORED, INVALID, Boolean, Categorical, Conditional, Integer, NodeSpace, SearchSpace

LATENCY = (Objective("latency_p50", "minimize"),)
BOTH = (Objective("latency_p50", "minimize"), Objective("accuracy", "maximize"))

NODES = {
    "pass1": NodeSpace(),
    "pass2": NodeSpace({"mode": Categorical("a", "b", "c")}),
    "pass3": NodeSpace(),
    "pass4": NodeSpace({"flag": Boolean()}),
    "pass5": NodeSpace({"mode": Categorical("a", "b", "c")}),
    "pass6": NodeSpace(),
    "wide": NodeSpace(
        {
            "bits": Integer(1, 6),
            "signed": Boolean(),
            "method": Conditional(
                "signed", {True: Categorical("minmax", "entropy"), False: Categorical("x", "y", "z")}
            ),
            "edge": Conditional(("signed", "bits"), {(True, 1): INVALID}, default=IGNORED),
            "block": Categorical([1, 2], [4]),
        }
    ),
}


def chain(*nodes: str, cuts: tuple = (), prior: tuple = (), weight: float = 1.0) -> ChainSpace:
    """A chain of nodes by name; its id reads like its passes."""
    space = SearchSpace({n: NODES[n] for n in nodes}, cuts)
    return ChainSpace(">".join(nodes), tuple((n, n) for n in nodes), space, weight, prior)


SIX = tuple(
    chain(*nodes.split())
    for nodes in (
        "pass1 pass2 pass5",
        "pass1 pass3 pass5",
        "pass1 pass3 pass6",
        "pass1 pass4 pass5",
        "pass1 pass4 pass6",
        "pass1 pass5",
    )
)
"""24 points."""
MIDDLE = (
    chain("pass1", "wide"),
    chain("pass2", "wide", cuts=({"pass2": {"mode": "a"}, "wide": {"bits": 2}},)),
    chain("pass4", "pass5"),
)
"""A few hundred points, with conditions and cuts."""


def text(proposal: Proposal) -> str:
    return json.dumps([proposal.chain, proposal.point, proposal.upto], sort_keys=True)


def measure(proposal: Proposal) -> Feedback:
    """A deterministic outcome of a proposal: additive effects with some noise, some infeasible, a few failures."""
    latency = 5.0 + Random(text(proposal)).random() * 0.2
    for node, values in proposal.point.items():
        for name, value in values.items():
            latency += 2 * Random(f"{node}.{name}={value}").random()
    if Random(f"fails {text(proposal)}").random() < 0.05:
        return Feedback(failed=True)
    accuracy = 1 - Random(f"accuracy {text(proposal)}").random() * 0.02
    return Feedback({"latency_p50": latency, "accuracy": accuracy}, violation=0.985 - accuracy)


def drive(
    strategy: Study, *, window: int = 1, limit: int = 10_000, outcome: Callable[[Proposal], Feedback] = measure
) -> list[Proposal]:
    """Carry a search to its end with `window` trials under way, told in the order asked."""
    asked: list[Proposal] = []
    open_trials: list[Proposal] = []
    while len(asked) < limit:
        new = strategy.ask(min(1, window - len(open_trials))) if len(open_trials) < window else []
        asked += new
        open_trials += new
        if not new:
            if not open_trials:
                break
            first = open_trials.pop(0)
            strategy.tell(first.number, outcome(first))
    return asked


def in_batches(strategy: Study, size: int, outcome: Callable[[Proposal], Feedback] = measure) -> list[Proposal]:
    """Carry a search to its end by whole batches, told backwards."""
    asked: list[Proposal] = []
    while batch := strategy.ask(size):
        asked += batch
        for proposal in reversed(batch):
            strategy.tell(proposal.number, outcome(proposal))
    return asked


def best_value(chains: Iterable[ChainSpace], outcome: Callable[[Proposal], Feedback] = measure) -> float:
    """What exhaustive search finds."""
    values = [math.inf]
    for one in chains:
        for point in one.space.iterate():
            feedback = outcome(Proposal(0, one.id, point))
            if not feedback.failed and feedback.violation <= 0:
                values.append(feedback.values["latency_p50"])
    return min(values)


def found(asked: Sequence[Proposal], outcome: Callable[[Proposal], Feedback] = measure) -> float:
    """The best feasible value among whole-chain proposals."""
    values = [math.inf]
    for proposal in asked:
        feedback = outcome(proposal)
        if proposal.upto is None and not feedback.failed and feedback.violation <= 0:
            values.append(feedback.values["latency_p50"])
    return min(values)
