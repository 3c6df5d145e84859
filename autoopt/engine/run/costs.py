"""What of a point is done already: of points that promise the same, the one with the least to do is tried."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autoopt.dag import Chain, ChainNode
from autoopt.engine.work.context import RunContext
from autoopt.engine.work.pass_runs import Progress, stored_run
from autoopt.search.trial import Cost
from autoopt.space import Point


def cost_of(ctx: RunContext, chains: Mapping[str, Chain]) -> Cost:
    """Whether a point's candidate was there before the run began, and how many of its last passes were not. What the
    run itself adds does not count: a resumed run is to ask what the uninterrupted one would have."""
    run = ctx.store.runs.get(ctx.run)
    began = run.created if run else 0.0
    known: dict[str, tuple[bool, int]] = {}

    def cost(chain_id: str, point: Point) -> tuple[bool, int]:
        key = json.dumps([chain_id, point], sort_keys=True, default=str)
        if key not in known:
            chain = chains[chain_id]
            lacking = _lacking(ctx, chain.nodes, chain.space.configs(point), began)
            known[key] = lacking == 0, lacking
        return known[key]

    return cost


def _lacking(
    ctx: RunContext, nodes: Sequence[ChainNode], configs: Mapping[str, Mapping[str, Any]], before: float
) -> int:
    """How many of the nodes' pass runs were not in the store before that time; none where one of them failed."""
    progress = Progress(ctx.source)
    while progress.done < len(nodes) and progress.outcome.good:
        record = stored_run(ctx, nodes[progress.done], configs, progress.candidate)
        if record is None or record.finished >= before:
            return len(nodes) - progress.done
        progress.take(nodes[progress.done].id, record)
    return 0
