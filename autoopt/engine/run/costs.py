"""The cost of a search point: of points that promise the same, the one with the least work left is tried first."""

from __future__ import annotations

import json
from collections.abc import Mapping

from autoopt.dag.compiler.chain import Chain
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.pass_runs import ChainProgress, stored_pass_run
from autoopt.search.trial import Cost
from autoopt.space import Point


def cost_of(ctx: RunContext, chains: Mapping[str, Chain]) -> Cost:
    """Make a function that tells if a point's candidate existed before the run, and how many passes it lacks.

    What the run itself adds does not count, so that a resumed run proposes what the uninterrupted one would have.
    """
    began = ctx.store.runs.get(ctx.run).created
    costs: dict[str, tuple[bool, int]] = {}

    def cost(chain_id: str, point: Point) -> tuple[bool, int]:
        key = json.dumps([chain_id, point], sort_keys=True, default=str)
        if key not in costs:
            missing = _missing_pass_runs(ctx, chains[chain_id], point, began)
            costs[key] = missing == 0, missing
        return costs[key]

    return cost


def _missing_pass_runs(ctx: RunContext, chain: Chain, point: Point, before: float) -> int:
    """Number of the chain's last pass runs that were not stored before that time; 0 if one of them failed."""
    configs = chain.space.configs(point)
    progress = ChainProgress(ctx.problem.source)
    while progress.completed < len(chain.nodes) and progress.outcome.good:
        node = chain.nodes[progress.completed]
        record = stored_pass_run(ctx, node, configs, progress.candidate)
        if record is None or record.finished >= before:
            return len(chain.nodes) - progress.completed
        progress.add(node.id, record)
    return 0
