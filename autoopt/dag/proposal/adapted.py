"""The templates of a proposal, adapted to its model and target."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from autoopt.dag.proposal.exclusions import ProposalInputs
from autoopt.dag.proposal.precisions import CPU, CUDA
from autoopt.dag.proposal.templates import CUDA_SESSION, TEMPLATES, Template, Values, threaded_session
from autoopt.space import Value
from autoopt.spec.targets import TargetSpec

LSTM_AT_RUN_TIME: Final[Values] = ((["LSTM"], 3), ([], 3))
"""Values of `dynamic_ops` for models with an LSTM, which has no static form."""


def adapted_templates(node_ids: Collection[str], inputs: ProposalInputs, target: TargetSpec) -> dict[str, Template]:
    """The templates of these nodes by id."""
    nodes = {node: TEMPLATES[node] for node in node_ids}
    if inputs.narrowing:
        contract: dict[str, Value] = {"values": inputs.narrowing.values, "shapes": inputs.narrowing.shapes}
        nodes["specialize"] = replace(nodes["specialize"], fixed=contract)
    if "LSTM" in inputs.inspection.ops and target.execution_provider == CPU:
        for node in ("static", "selective"):
            if node in nodes:
                search = {**nodes[node].search, "dynamic_ops": LSTM_AT_RUN_TIME}
                nodes[node] = replace(nodes[node], search=search)
    if target.execution_provider == CUDA:
        nodes["session"] = CUDA_SESSION
    elif target.thread_choices:
        nodes["session"] = threaded_session(target.accelerator().thread_values)
    return nodes
