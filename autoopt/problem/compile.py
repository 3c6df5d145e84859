"""Compile a request with what was read of it: the plan of its DAG, or of the DAG that is proposed for a bare model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from autoopt.dag import Facts, Plan, compile_plan, pass_infos
from autoopt.errors import InputError
from autoopt.problem.described_data import DataFacts
from autoopt.problem.probe import Probe
from autoopt.problem.proposal_facts import machine_options, proposal_inputs
from autoopt.problem.run_request import RunRequest
from autoopt.problem.runtimes import machine_targets
from autoopt.registry import DescribeReply
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model

if TYPE_CHECKING:
    from autoopt.dag.proposal.propose import Proposal


@dataclass(frozen=True)
class Probed:
    """The facts that workers read of the model, data and script of a request."""

    facts: Facts
    """Those of the model, the runtime and the machine."""
    data: DataFacts = field(default_factory=DataFacts)
    script: DescribeReply = field(default_factory=lambda: DescribeReply(()))
    """The definitions of the user script."""


@dataclass(frozen=True)
class Compiled:
    """The DAG of a request and its plan."""

    spec: DagSpec
    plan: Plan
    proposal: Proposal | None = None
    """None for a DAG of the user."""
    generates: bool = False
    """True if the model of a proposal generates text."""


def compile_request(
    request: RunRequest,
    spec: DagSpec,
    probed: Probed,
    probe: Probe,
    *,
    anywhere: bool = False,
    set_has_data: bool | None = None,
) -> Compiled:
    """Plan the DAG of a request for its first target, or the DAG that is proposed for its bare model.

    With `anywhere`, plan as on a machine with the target's execution provider. Of a model of a set whose inputs are not
    recorded yet, `set_has_data` says if the set has data.

    Raises:
        InputError: A pass is unknown, or cannot be had.
    """
    facts = probed.facts
    infos = pass_infos(facts.accelerator, probed.script.added_passes())
    if not names_model(request.dag):
        host_passes = partial(probe.passes_of, accelerator=facts.accelerator)
        return Compiled(spec, compile_plan(spec, infos, facts, host_passes=host_passes))
    # Imported late, because most runs have a DAG.
    from autoopt.dag.proposal.narrowing import narrowing_of
    from autoopt.dag.proposal.propose import propose

    assert facts.inspection is not None, "a proposal is for a model"
    data, options = probed.data, machine_options(request.proposal_options)
    if set_has_data is not None:
        options = replace(options, keep_signature=True)
    narrowing = narrowing_of(facts.inspection, tuple(data.descriptions), frozenset(data.fed_back), data.batch_size)
    inputs = proposal_inputs(
        str(request.dag), facts.inspection, data.evaluation, bool(facts.has_calibration), options, narrowing
    ).with_goal(request.goal.minimize)
    if set_has_data is not None:
        # A run of a set records what reaches the model, from data or from generated inputs.
        inputs = replace(inputs, evaluation=set_has_data, calibration=True)
    proposal = propose(options, inputs, infos, facts)
    plan = proposal.plan(infos, anywhere=anywhere)
    return Compiled(proposal.spec, plan, proposal, inputs.generates_text)


def with_machine_targets(request: RunRequest, spec: DagSpec, probe: Probe) -> tuple[DagSpec, list[str]]:
    """The placeholder of a bare model's DAG with a target for each provider of this machine.

    Returns:
        It, and a sentence on each runtime.

    Raises:
        InputError: A runtime cannot be used, or the models are several.
    """
    if request.parts:
        raise InputError("several models run on one provider", where="ep", remedy="name it")
    options = machine_options(request.proposal_options)
    runtimes = [probe.installed_runtime(python) for python in ("", *dict.fromkeys(options.runtimes))]
    targets = machine_targets(options, runtimes)
    spec = spec.model_copy(update={"target": None, "targets": targets})
    spec.__dict__.pop("all_targets", None)  # model_copy copies cached properties too
    return spec, [runtime.words for runtime in runtimes]
