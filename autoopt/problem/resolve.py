"""Resolve a request: read what it names, compile the plan, and set the goal.

A plan and a run take the same way. Without the resources of a run, the files are read where they are, nothing is stored
or made up, and data that is not in files of this machine is not read. A process that joins a run reads nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autoopt.dag import compile_plan, pass_infos
from autoopt.dag.compiler.plan import Plan
from autoopt.data.decoder import decodes
from autoopt.data.description import DataDescription
from autoopt.errors import InputError
from autoopt.model.inspection import Inspection
from autoopt.problem.earlier_runs import taught_plan
from autoopt.problem.goal import GoalRequest, make_goal
from autoopt.problem.probe import Probe
from autoopt.problem.problem import Goal, Limits, Problem, Sources
from autoopt.problem.run_request import RunRequest, machine_options, model_name, spec_of
from autoopt.problem.runtimes import machine_targets
from autoopt.problem.sources import read_sources, relocated
from autoopt.registry import PassInfo
from autoopt.report.words.steps import ARROW, steps_text
from autoopt.results import Note, NoteKind
from autoopt.spec import DagSpec
from autoopt.spec.dag import with_thread_search
from autoopt.spec.proposal_options import names_model
from autoopt.spec.targets import HostSpec
from autoopt.store import RunRecord, Store

if TYPE_CHECKING:
    from autoopt.dag.proposal.propose import Proposal
    from autoopt.problem.resources import Resources

CHAIN_WIDTH: Final = 30
"""Characters of a chain in a line."""


def resolve(request: RunRequest, spec: DagSpec, resources: Resources | None = None) -> Problem:
    """Read what the request names, and plan its DAG for the first target, or the DAG proposed for its bare model.

    Args:
        request: What the user asked for.
        spec: Its DAG; for a bare model, the placeholder.
        resources: Those of a run; None for a plan, which may be without a model.

    Raises:
        InputError: What the user gave is wrong; one line.
    """
    spec = with_thread_search(spec)
    with Probe(resources) as probe:
        sources = read_sources(request, spec, probe)
        with probe.store() as store:
            return _compiled(request, spec, sources, probe, store)


def stored_problem(record: RunRecord, request: RunRequest, resources: Resources) -> Problem:
    """The problem of a run that another process began, from its record, with the paths and hosts of this machine.

    Raises:
        InputError: The DAG, the data, the CPU or the installed versions have changed since.
    """
    spec = with_thread_search(spec_of(request))
    with Probe(resources) as probe:
        model = probe.read_model(str(request.model))
        sources = relocated(Sources.from_json(record.settings["sources"]), request, spec, model.inspection, probe)
        problem = _compiled(request, spec, sources, probe)
    if problem.identity != record.identity:
        what = "cannot be joined here: the DAG, the data, the CPU or the installed versions differ"
        raise InputError(f"run {record.id} {what}")
    return problem


def _compiled(
    request: RunRequest, spec: DagSpec, sources: Sources, probe: Probe, store: Store | None = None
) -> Problem:
    """Compile the problem from what was read; `store` has the earlier runs that may teach something.

    Each step needs what those before it found: the script defines passes and metrics, the graph is proposed for model
    and data, and which earlier run can teach something depends on the goal. Only the passes of other hosts are asked
    for, where the plan needs them.
    """
    measurement = request.measurement_of(spec)
    plan, proposal = _plan(request, spec, sources, probe)
    spec, target = plan.spec, plan.spec.all_targets[0]
    inspection = sources.facts.inspection
    goal, goal_notes = _goal(request, spec, sources)
    problem = Problem(
        plan=plan,
        source=sources.model,
        goal=goal,
        target=replace(target.target(), plugin=sources.plugin),
        host=target.where,
        accelerator=sources.facts.accelerator,
        data=sources.data,
        script=sources.script,
        data_root=spec.data_root,
        limits=_limits(request, spec, inspection),
        measurement=measurement,
        unverified=sources.unverified,
        model=sources.path,
        search=spec.search.config().overridden(request.search),
        runtimes=sources.runtimes,
        candidates=request.candidates,
        proposal=proposal,
        sources=sources,
    )
    if inspection is not None and not target.is_elsewhere(request.pool):
        plan = taught_plan(store, problem)
    notes = (
        *map(Note, (*sources.repairs, *plan.warnings)),
        *dict.fromkeys(sources.notes),
        *explanations(plan),
        *map(Note, goal_notes),
    )
    return replace(problem, plan=plan, notes=notes)


def _plan(request: RunRequest, spec: DagSpec, sources: Sources, probe: Probe) -> tuple[Plan, Proposal | None]:
    """The plan of the request's DAG, or of the one that is proposed for its bare model; and the proposal, if any.

    Raises:
        InputError: A pass is unknown, or cannot be had.
    """
    facts, evaluation = sources.facts, sources.evaluation
    if request.set_has_data is not None:
        facts = replace(facts, has_calibration=True)
    infos = pass_infos(facts.accelerator, sources.definitions.added_passes())
    if not names_model(request.dag):

        def host_passes(host: HostSpec) -> Mapping[str, PassInfo]:  # no other host is opened unless a pass needs it
            return probe.hosts.passes_of(host, facts.accelerator)

        return compile_plan(spec, infos, facts, host_passes=host_passes), None
    from autoopt.dag.proposal.inputs import ProposalInputs
    from autoopt.dag.proposal.narrowing import Narrowing, narrowing_of
    from autoopt.dag.proposal.propose import propose

    assert facts.inspection is not None, "a proposal is for a model"
    options = machine_options(request.proposal_options)
    narrowing = Narrowing()
    if not options.keep_signature and request.set_has_data is None:
        descriptions = tuple(sources.descriptions.values())
        narrowing = narrowing_of(facts.inspection, descriptions, frozenset(sources.fed_back), sources.batch_size)
    inputs = ProposalInputs(
        inspection=facts.inspection,
        name=model_name(str(request.dag)),
        evaluation=evaluation is not None if request.set_has_data is None else request.set_has_data,
        labels=evaluation is not None and evaluation.labels,
        calibration=bool(facts.has_calibration),
        fidelity=options.fidelity is not False,
        narrowing=narrowing,
        # A smaller model may be the answer even where it is not faster.
        smaller_counts=options.precision is not None or request.goal.minimize in ("size", "memory"),
    )
    proposal = propose(options, inputs, infos, facts)
    return proposal.plan(infos, anywhere=request.is_draft), proposal


def _goal(request: RunRequest, spec: DagSpec, sources: Sources) -> tuple[Goal, list[str]]:
    """The goal of the request or of the DAG with its defaults, and notes on these.

    Data that nobody has read may have the labels that a limit needs; which default limit a run adds is then unknown.
    """
    evaluation = DataDescription(labels=True) if sources.is_unread else sources.evaluation
    stated = request.goal.apply(GoalRequest.of(spec, sources.definitions.metrics_by_name()), evaluation)
    generates = sources.facts.inspection is not None and decodes(sources.facts.inspection)
    goal, notes = make_goal(replace(stated, unverified=sources.unverified, generates=generates), evaluation)
    if sources.is_unread:
        goal = replace(goal, constraints=tuple(stated.constraints or ()))
    return goal, notes


def _limits(request: RunRequest, spec: DagSpec, inspection: Inspection | None) -> Limits:
    """The limits of the request, or else of the DAG; times that neither states grow with the bytes of the model."""
    if request.limits == Limits():
        size = 0 if inspection is None else inspection.bytes
        return Limits(**spec.limits.model_dump()).grown(size, spec.limits.model_fields_set)
    return request.limits


def with_machine_targets(
    request: RunRequest, spec: DagSpec, resources: Resources | None = None
) -> tuple[DagSpec, list[str]]:
    """The placeholder of a bare model's DAG with a target for each provider of this machine.

    Returns:
        It, and a sentence on each runtime.

    Raises:
        InputError: A runtime cannot be used.
    """
    options = machine_options(request.proposal_options)
    with Probe(resources) as probe:
        runtimes = [probe.installed_runtime(python) for python in ("", *dict.fromkeys(options.runtimes))]
    spec = spec.model_copy(update={"target": None, "targets": machine_targets(options, runtimes)})
    spec.__dict__.pop("all_targets", None)  # model_copy copies cached properties too
    return spec, [runtime.words for runtime in runtimes]


def explanations(plan: Plan) -> list[Note]:
    """A note each for the values that a proposal tries, its decisions that matter to users, and an earlier run."""
    notes: list[Note] = []
    tried = [decision.tried for decision in plan.decisions if decision.tried]
    if tried:
        notes.append(Note(f"trying {', '.join(tried)}"))
    shown = [decision for decision in plan.decisions if not decision.tried and not decision.is_detail]
    for decision in shown:
        if decision.what == NoteKind.NO_DATA:
            notes.append(Note(decision.why, NoteKind.NO_DATA))
        else:
            notes.append(Note(f"{decision.what}: {decision.why}"))
    if plan.learned:
        first = steps_text(ARROW.join(plan.learned[0].chain), {}, CHAIN_WIDTH)
        note = "the best in an earlier run of the same graph ('autoopt --verbose plan' says why)"
        notes.append(Note(f"starting with {first}, {note}"))
    return notes
