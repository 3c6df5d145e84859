"""Models and proposals for tests of proposals."""

from __future__ import annotations

from typing import Any

from autoopt.dag import Facts, Plan, pass_infos
from autoopt.dag.proposal.inputs import ProposalInputs
from autoopt.dag.proposal.propose import Proposal, propose
from autoopt.model.inspection import Inspection
from autoopt.problem.earlier_runs import Example, known_point
from autoopt.spec.proposal_options import ProposalOptions


def model(*ops: str, **fields: Any) -> Inspection:
    """An inspection with two of each operator."""
    defaults: dict[str, Any] = {"opsets": {"": 17}, "ir_version": 8, "parameters": 10_000, "bytes": 40_000}
    return Inspection((), (), op_counts=dict.fromkeys(ops, 2), **{**defaults, **fields})


CNN = model("Conv", "BatchNormalization", "Relu", "Gemm")
TRANSFORMER = model("MatMul", "Softmax", "LayerNormalization", "Gather", "Add")
TREES = model("ai.onnx.ml::TreeEnsembleClassifier", opsets={"ai.onnx.ml": 3})
LABELLED = {"evaluation": True, "labels": True, "calibration": True}


def inputs_of(inspection: Inspection, **data: Any) -> ProposalInputs:
    """A model with labelled evaluation data and calibration data, unless `data` says otherwise."""
    return ProposalInputs(inspection, **{**LABELLED, **data})


def proposed(
    inspection: Inspection, options: ProposalOptions | None = None, *examples: Example, **data: Any
) -> tuple[Proposal, Plan]:
    """A proposal for a model, and its plan."""
    options = options or ProposalOptions()
    accelerator = options.target().accelerator()
    infos = pass_infos(accelerator)
    proposal = propose(options, inputs_of(inspection, **data), infos, Facts(accelerator))
    plan = proposal.plan(infos)
    known = [known_point(plan, example) for example in examples]
    return proposal, plan.with_learned([point for point in known if point is not None])
