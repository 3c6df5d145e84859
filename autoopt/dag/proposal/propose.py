"""Propose a pass graph for a model, from its inspection, target, data, precision and level.

The graph contains everything that the provider can use. Nodes and values that the model, the data or the level rule out
stay in it and are pruned with a reason when it is compiled (`Facts(proposed=True)`), so that a plan shows every cut.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoopt.dag.compiler.compile import compile_plan
from autoopt.dag.compiler.plan import Decision, Plan
from autoopt.dag.compiler.priors import Prior
from autoopt.dag.compiler.pruning import Facts, Reason, check_runtime, first_reason
from autoopt.dag.compiler.requirements import Infos
from autoopt.dag.proposal.decisions import decisions, effort_for
from autoopt.dag.proposal.inputs import (
    RECURRENT_OPS,
    ProposalInputs,
    conditions,
    conv_share,
    has_fusable_parts,
    has_split_hard_sigmoids,
    has_two_kinds,
    hold,
)
from autoopt.dag.proposal.proposal_priors import (
    FEW_BITS,
    Beginning,
    Places,
    ruled_out,
    untried_combinations,
    value_cuts,
)
from autoopt.dag.proposal.templates import (
    OPENVINO,
    TABLES,
    TEMPLATES,
    Method,
    Points,
    Template,
    first_values,
    openvino_session,
    provider_profile,
    provider_session,
    threaded_session,
)
from autoopt.json_codec import JsonValue
from autoopt.model.inspection import Inspection
from autoopt.model.session_options import SEARCHED_OPTIONS
from autoopt.space import Value, same
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.proposal_options import HIGHEST, ProposalOptions
from autoopt.spec.strict_model import name_from
from autoopt.spec.targets import TargetSpec
from autoopt.tuning import PROPOSAL

AS_QUANTIZERS_DO: Final[Mapping[str, Value]] = {"per_channel": False, "op_types": ["MatMul", "Attention", "LSTM"]}
"""Values of `dynamic` by which a model that came quantized so gets the same weights and results again."""
INTEGER_DOT_PRODUCTS: Final = frozenset(("avx512_vnni", "avx_vnni", "amx_int8"))
"""Instructions of x86 without which dense layers in integers gain more with one scale for all channels."""


@dataclass(frozen=True)
class Proposal:
    """A proposed graph and the decisions that led to it. `reasons`: node id -> the reason why it is ruled out."""

    spec: DagSpec
    priors: tuple[Prior, ...]
    facts: Facts
    reasons: Mapping[str, Reason]
    decisions: tuple[Decision, ...]

    def plan(self, infos: Infos, *, anywhere: bool = False) -> Plan:
        """The compiled proposal; `anywhere`: for any machine with the provider, even if this one lacks it."""
        facts = replace(self.facts, installed_eps=None) if anywhere else self.facts
        plan = compile_plan(self.spec, infos, facts, priors=self.priors)
        return replace(plan, decisions=self.decisions)


def propose(options: ProposalOptions, inputs: ProposalInputs, infos: Infos, facts: Facts) -> Proposal:
    """A pass graph for a model.

    `facts` are those about accelerator and runtime; model, data, level and rulings are added here.

    Raises:
        InputError: an unknown target.
    """
    target = options.target()
    profile = provider_profile(target.execution_provider)
    methods = profile.chosen(options.precision)
    layout = _layout(methods, inputs, conditions(inputs, target, options.level))
    nodes = adapted_templates([node for stage in layout for node in _remaining(stage)], inputs, target)
    cuts = list(value_cuts(nodes, profile.fixed, inputs, target, options.level))
    rulings: dict[str, Reason | None] = {}
    for node, template in nodes.items():
        rulings[node] = ruled_out(node, inputs, target, options.level) or _without_values(node, template, cuts)
    facts = replace(
        facts,
        inspection=inputs.inspection,
        has_calibration=inputs.calibration,
        level=options.level,
        proposed=True,
        ruled_out={node: reason for node, reason in rulings.items() if reason is not None},
    )
    reasons = _reasons(nodes, infos, facts)
    beginning = Beginning(
        [_remaining(stage, reasons) for stage in layout],
        nodes,
        profile.fixed,
        _places(inputs, layout, nodes, reasons),
        first_values_for(inputs, facts.accelerator.isa),
    )
    decided = list(decisions(options, inputs, target, methods, reasons))
    no_runtime = check_runtime(facts)
    if no_runtime is not None:
        decided.insert(0, Decision("not on this machine", no_runtime.text))
    spec = _spec(options, inputs, nodes, _skippable(layout, reasons))
    priors = (*cuts, *untried_combinations(nodes), *beginning.priors())
    return Proposal(spec, priors, facts, reasons, tuple(decided))


def _places(
    inputs: ProposalInputs,
    layout: Sequence[Sequence[str | None]],
    nodes: Mapping[str, Template],
    reasons: Collection[str],
) -> Places:
    """Preparation alone comes first where it gains what the runtime does not, else last."""
    model = inputs.inspection
    is_small = model.parameters < PROPOSAL.small_model
    places = Places(
        "last",
        one_thread=is_small,
        integers_on_one_thread=is_small and not RECURRENT_OPS.isdisjoint(model.ops),
        early={"weights": FEW_BITS} if _is_large_decoder(inputs) else {},
        late=late_nodes(model),
    )
    if any(None not in stage and any(nodes[node].lossy for node in _remaining(stage)) for stage in layout):
        return replace(places, floats="")  # a stage without "skip" leaves no chain without a lossy pass
    gain = _gain_of_preparation(inputs, nodes.keys() - set(reasons))
    if not gain:
        return places
    return replace(places, floats="first", reason=f"first, because {gain} without a change of results")


def _is_large_decoder(inputs: ProposalInputs) -> bool:
    return inputs.generates_text and inputs.inspection.parameters >= PROPOSAL.large_decoder


def _gain_of_preparation(inputs: ProposalInputs, tried: Collection[str]) -> str:
    """Words on a gain of preparation alone that the runtime does not have; empty if none is known."""
    model = inputs.inspection
    if inputs.generates_text and "fuse" in tried and not _is_large_decoder(inputs):
        return "fused attention with a cache gains"
    if has_split_hard_sigmoids(model) and "activations" in tried:
        return "hard sigmoids as single operators gain"
    if model.overridable:
        return "weights that are inputs gain by becoming constants"
    if model.parameters >= PROPOSAL.small_model and not _is_large_decoder(inputs) and "simplify" in tried:
        return "it takes the least time and may gain"
    return ""


def first_values_for(inputs: ProposalInputs, isa: Collection[str] = ()) -> Points:
    """The values that lossy nodes begin with, by the kind of the model, the CPU and the model's own quantization."""
    model, kind = inputs.inspection, _kind(inputs)
    values = first_values(kind)
    if kind == "any" and "avx2" in isa and INTEGER_DOT_PRODUCTS.isdisjoint(isa):
        per_tensor = [{**point, "per_channel": False} for point in values["static"][:2]]
        values = {**values, "static": [*per_tensor, *values["static"]]}
    if not inputs.quantized:
        return values
    is_unsigned = model.weight_dtypes.get("uint8", 0) > model.weight_dtypes.get("int8", 0)
    as_before = {**AS_QUANTIZERS_DO, "weight_type": "QUInt8" if is_unsigned else "QInt8"}
    return {**values, "dynamic": [as_before, *values["dynamic"]]}


def _kind(inputs: ProposalInputs) -> str:
    model = inputs.inspection
    has_fusable, has_convolutions = has_fusable_parts(model), "Conv" in model.ops
    if inputs.generates_text:
        return "text"
    if has_fusable and not has_convolutions:
        return "attention"
    if has_two_kinds(model):
        return "convolutions_and_attention"
    if has_convolutions and not has_fusable and "LSTM" not in model.ops:
        return "convolutions"
    return "any"


def late_nodes(model: Inspection) -> dict[str, str]:
    """The lossy nodes that come after the others, with the reason."""
    share = conv_share(model)
    if share < PROPOSAL.conv_share:
        return {}
    return {"dynamic": f"late, because it leaves convolutions in float, which hold {share:.0%} of the weights"}


def proposal_name(model: str) -> str:
    """The name of a proposed graph: the model's, reduced to the characters that a name may have."""
    return name_from(model.removesuffix(".onnx"), "model")[:100]


def _layout(methods: Mapping[str, Method], inputs: ProposalInputs, facts: Collection[str]) -> list[list[str | None]]:
    """The stages that the model has a use for; None is "skip"."""
    precisions = _precision_nodes(methods, inputs)
    if "fp32" in methods and "floats_fit" in facts:
        facts = {*facts, "floats"}
    layout: list[list[str | None]] = []
    for stage in TABLES.stages:
        nodes = precisions if stage.nodes == ("precisions",) else stage.nodes
        if nodes and hold(stage.when, facts):
            is_skipped = stage.skip is not None and hold(stage.skip, facts)
            layout.append([*nodes, None] if is_skipped else [*nodes])
    return layout


def _remaining(stage: Sequence[str | None], reasons: Collection[str] = ()) -> list[str]:
    """The alternatives that are not ruled out."""
    return [node for node in stage if node is not None and node not in reasons]


def _skippable(layout: Sequence[list[str | None]], reasons: Collection[str]) -> list[list[str | None]]:
    """The stages of the spec; one whose nodes are all ruled out can be skipped."""
    return [stage if None in stage or _remaining(stage, reasons) else [*stage, None] for stage in layout]


def _precision_nodes(methods: Mapping[str, Method], inputs: ProposalInputs) -> tuple[str, ...]:
    """The alternatives of the stage of precisions, the most promising one first."""
    nodes: dict[str, None] = {}
    for method in methods.values():
        nodes.update(dict.fromkeys(method.nodes))
    if "Conv" in inputs.inspection.ops and "static" in nodes:
        # Only static quantization makes convolutions faster.
        nodes = {"static": None, **nodes}
    if "weights" in nodes and inputs.generates_text:
        # Each token reads all weights, so few bits come first.
        nodes = {"weights": None, "calibrated": None, **nodes}
    return tuple(nodes)


def _reasons(nodes: Mapping[str, Template], infos: Infos, facts: Facts) -> dict[str, Reason]:
    """Node id -> the reason why it is ruled out; a missing provider is a decision of its own, not such a reason."""
    reasons: dict[str, Reason] = {}
    for node, template in nodes.items():
        reason = first_reason(node, infos(template.pass_name), replace(facts, installed_eps=None))
        if reason is not None:
            reasons[node] = reason
    return reasons


def _spec(
    options: ProposalOptions,
    inputs: ProposalInputs,
    nodes: Mapping[str, Template],
    stages: Sequence[Sequence[str | None]],
) -> DagSpec:
    """The proposal as a spec, with everything that is ruled out still in it."""
    target = options.target()
    effort = effort_for(inputs.inspection, options.level)
    fixed = provider_profile(target.execution_provider).fixed
    passes: dict[str, JsonValue] = {}
    for node, template in nodes.items():
        params: dict[str, JsonValue] = {**template.fixed, **fixed.get(node, {})}
        for name, values in template.search.items():
            if name not in params:
                params[name] = {"search": [value for value, _ in values]}
        passes[node] = {"pass": template.pass_name, "params": params}
    return load_dag(
        {
            "name": proposal_name(inputs.name),
            "target": target_fields(target),
            "passes": passes,
            "stages": stages,
            "search": {"trials": effort.trials, "minutes": float(effort.minutes)},
        }
    )


def target_fields(target: TargetSpec) -> dict[str, JsonValue]:
    """The fields of a proposed target; the threads if they are not the default."""
    fields = target.model_dump(mode="json", include={"device", "execution_provider", "memory"}, exclude_none=True)
    if target.thread_choices:
        fields["threads"] = [threads or "all" for threads in target.thread_choices]
    elif target.threads != 1:
        fields["threads"] = target.threads or "all"
    given = target.model_dump(include={"name", "python"}, exclude_defaults=True)
    return {**fields, **given}


def _without_values(node: str, template: Template, cuts: Sequence[Prior]) -> Reason | None:
    """The reason to rule out a node if none of the values of one of its parameters is left."""
    for name, values in template.search.items():
        own_cuts = [cut for cut in cuts if name in cut.values.get(node, {})]
        cut_values = [cut.values[node][name] for cut in own_cuts]
        if all(any(same(value, other) for other in cut_values) for value, _ in values):
            return Reason("inspection", own_cuts[0].reason)
    return None


def adapted_templates(node_ids: Collection[str], inputs: ProposalInputs, target: TargetSpec) -> dict[str, Template]:
    """The templates of these nodes by id."""
    nodes = {node: TEMPLATES[node] for node in node_ids}
    if inputs.narrowing:
        contract: dict[str, Value] = {"values": inputs.narrowing.values, "shapes": inputs.narrowing.shapes}
        nodes["specialize"] = replace(nodes["specialize"], fixed=contract)
    facts = conditions(inputs, target, HIGHEST)
    for row in TABLES.searched:
        if hold(row.when, facts):
            for node in nodes.keys() & set(row.nodes):
                nodes[node] = replace(nodes[node], search={**nodes[node].search, **row.search})
    session = provider_profile(target.execution_provider).session
    if session != "session":
        nodes["session"] = TEMPLATES[session]
    elif target.execution_provider == OPENVINO:
        nodes["session"] = openvino_session(target.accelerator().thread_values)
    elif target.execution_provider in SEARCHED_OPTIONS:
        nodes["session"] = provider_session(SEARCHED_OPTIONS[target.execution_provider])
    elif target.thread_choices:
        nodes["session"] = threaded_session(target.accelerator().thread_values)
    return nodes
