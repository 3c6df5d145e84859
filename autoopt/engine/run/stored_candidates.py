"""Candidates of other runs in the same store, as trials that this run measures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from autoopt.dag import pass_infos
from autoopt.dag.compiler.chain import Chain, ChainNode
from autoopt.engine.run.trial import CompletedTrial
from autoopt.engine.work.context import RunContext
from autoopt.results import Trial
from autoopt.space import Categorical, NodeSpace, SearchSpace

SOURCE_ONLY: Final = "source"
"""In place of a trial: no other candidate than the source model."""


def stored_candidates(ctx: RunContext, names: Iterable[str]) -> list[CompletedTrial]:
    """Trials of other runs by `RUN:TRIAL`, numbered from 0.

    Their chains may not exist in this run's plan, which another machine may have pruned otherwise: each trial gets one
    with its own point as the only one.

    Raises:
        InputError: The store has no such trial.
    """
    trials = []
    for number, name in enumerate(names):
        if name == SOURCE_ONLY:
            continue
        run, _, original = name.rpartition(":")
        trial = ctx.store.trials.get(run, int(original))
        chain = _chain(ctx, trial)
        trials.append(CompletedTrial(chain, replace(trial, run=ctx.run, number=number)))
    return trials


def _chain(ctx: RunContext, trial: Trial) -> Chain:
    """The chain of another run's trial, with the trial's point as the only one."""
    infos = pass_infos(ctx.problem.accelerator)
    plan = ctx.problem.plan
    recorded = next(chain for chain in ctx.store.runs.chains(trial.run) if chain.id == trial.chain_id)
    pass_runs = ctx.store.results.pass_runs(trial.pass_runs)
    nodes = []
    for name, key in zip(recorded.nodes, trial.pass_runs, strict=False):
        pass_name, point = pass_runs[key].pass_name, trial.point.get(name, {})
        searched = {param: Categorical(value) for param, value in point.items()}
        fixed = {param: value for param, value in pass_runs[key].params.items() if param not in point}
        space = NodeSpace(searched, fixed)
        if name in plan.spec.passes:
            nodes.append(ChainNode(name, pass_name, plan.pass_info(name), space))
        else:
            nodes.append(ChainNode(name, pass_name, infos(pass_name), space, inserted=True))
    only_point = SearchSpace({node.id: node.space for node in nodes})
    return Chain(recorded.id, recorded.name, tuple(nodes), only_point, points_before=1)
