"""A pass graph proposed for a model: from its inspection, target, data, precision and level.

The graph holds what the table of flows names; what the model, the data or the level rule out stays in it and is pruned
with a reason when it is compiled (`Facts(proposed=True)`), so that a plan shows every cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from autoopt.dag.compiler.compile import compile_plan
from autoopt.dag.compiler.plan import Decision, Plan
from autoopt.dag.compiler.pruning import Facts, Reason, check_runtime, first_reason
from autoopt.dag.compiler.requirements import Infos
from autoopt.dag.graph.priors import Prior
from autoopt.dag.proposal.exclusions import Given, exclusions, floats_fit, needs_static_shapes, ruled_out, value_cuts
from autoopt.dag.proposal.precisions import CUDA, Flow, chosen, provider
from autoopt.dag.proposal.templates import CUDA_SESSION, MINUTES, TEMPLATES, TRIALS, Template
from autoopt.dag.proposal.warm_start import Example, learned_priors
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.spec.targets import TargetSpec

LOWEST_OPSET: Final = 13
"""Models of older operator sets are tried converted as well: quantisation by channel begins there."""
LOWEST_IR: Final = 8


@dataclass(frozen=True)
class Proposal:
    """A proposed graph with what was decided on the way. `reasons`: node id -> why it is ruled out, where it is."""

    spec: DagSpec
    priors: tuple[Prior, ...]
    facts: Facts
    reasons: Mapping[str, Reason]
    decisions: tuple[Decision, ...]

    def plan(self, infos: Infos, *, anywhere: bool = False) -> Plan:
        """The proposal compiled; `anywhere`: for a machine that has the provider, whether this one has it or not."""
        facts = replace(self.facts, installed_eps=None) if anywhere else self.facts
        made = compile_plan(self.spec, infos, facts, priors=self.priors)
        learned = tuple(p.reason for p in self.priors if p.origin == "learned" and not p.values)
        return replace(made, decisions=self.decisions, learned=learned)


def propose(
    wish: ProposalOptions, given: Given, infos: Infos, facts: Facts, examples: Sequence[Example] = ()
) -> Proposal:
    """A pass graph for a model.

    Args:
        infos: what is known of a pass, for the target's accelerator.
        facts: accelerator, inspection and runtime; level, data and rulings are filled in here.
        examples: what earlier runs on similar models preferred.

    Raises:
        InputError: an unknown target.
    """
    target = wish.target()
    flows = chosen(target.execution_provider, wish.precision)
    layout = _layout(wish, given, target, flows)
    nodes = {node: _template(node, target) for stage in layout for node in stage.nodes}
    out = {node: reason for node in nodes if (reason := ruled_out(node, given, target)) is not None}
    known = replace(facts, inspection=given.inspection, has_calibration=given.calibration, level=wish.level)
    judged = replace(known, proposed=True, ruled_out=out)
    anywhere = replace(judged, installed_eps=None)
    reasons = {n: r for n, t in nodes.items() if (r := first_reason(n, infos(t.pass_name), anywhere)) is not None}
    stages = [stage.written(reasons) for stage in layout]
    fixed = provider(target.execution_provider).fixed
    params = {node: _params(t, fixed.get(node, {})) for node, t in nodes.items()}
    spec = load_dag(_written(wish, given, target, nodes, params, stages))
    searched = {node: {k for k, v in p.items() if isinstance(v, dict)} for node, p in params.items()}
    priors = [*value_cuts(nodes, searched, given, target, wish.level), *exclusions(nodes)]
    kept = _kept_values(nodes, priors)
    priors += learned_priors(examples, [[n for n in s if n not in reasons] for s in stages], nodes, kept)
    decisions = [*_runtime(judged), *_decisions(wish, given, target, flows, reasons)]
    return Proposal(spec, tuple(priors), judged, reasons, tuple(decisions))


@dataclass(frozen=True)
class _Stage:
    """Alternatives of one place; `skip`: whether going without is one of them."""

    nodes: tuple[str, ...]
    skip: bool = False

    def written(self, reasons: Mapping[str, Reason]) -> list[str | None]:
        """The stage as dag.yaml writes it; one whose alternatives are all ruled out can be skipped."""
        skip = self.skip or all(node in reasons for node in self.nodes)
        return [*self.nodes, None] if skip else list(self.nodes)


def _layout(wish: ProposalOptions, given: Given, target: TargetSpec, flows: Mapping[str, Flow]) -> list[_Stage]:
    """The stages, in the order in which passes work: names, format, shapes, tidying, folding, fusion, precision or
    quantisation, the runtime's graph, the session."""
    model, known = given.inspection, provider(target.execution_provider)
    stages = [_Stage(("names",))]
    if model.ir_version < LOWEST_IR:
        stages.append(_Stage(("ir",)))
    if 0 < model.opsets.get("", 0) < LOWEST_OPSET:
        stages.append(_Stage(("opset",), skip=True))
    if needs_static_shapes(given, target):
        stages.append(_Stage(("shapes",)))
    if wish.level == 0:
        stages += [_Stage(("unused",)), _Stage(("shared",), skip=True)]
    stages += [_Stage(("simplify", "constants")), _Stage(("fold",), skip=wish.level > 2), _Stage(("pads",), skip=True)]
    if known.fuses:
        stages.append(_Stage(("fuse",), skip=True))
    heart = tuple(dict.fromkeys(node for flow in flows.values() for node in flow.nodes))
    if heart:
        stages.append(_Stage(heart, skip="fp32" in flows and floats_fit(given, target)))
    if known.fuses and floats_fit(given, target):
        stages.append(_Stage(("graph",), skip=True))
    return [*stages, _Stage(("session",), skip=True)]


def _template(node: str, target: TargetSpec) -> Template:
    return CUDA_SESSION if node == "session" and target.execution_provider == CUDA else TEMPLATES[node]


def _params(template: Template, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a node as dag.yaml writes them: every value of the template, less what the target fixes."""
    free = {name: values for name, values in template.search.items() if name not in fixed}
    searched = {name: {"search": [value for value, _ in values]} for name, values in free.items()}
    return {**template.fixed, **fixed, **searched}


def _written(
    wish: ProposalOptions,
    given: Given,
    target: TargetSpec,
    nodes: Mapping[str, Template],
    params: Mapping[str, Mapping[str, Any]],
    stages: Sequence[list[str | None]],
) -> dict[str, Any]:
    """The proposal as dag.yaml would hold it, with everything that is ruled out still in it."""
    return {
        "name": proposal_name(given.name),
        "target": target.model_dump(include={"device", "execution_provider", "memory"}, exclude_none=True),
        "passes": {node: {"pass": t.pass_name, "params": dict(params[node])} for node, t in nodes.items()},
        "stages": stages,
        "search": {"trials": TRIALS[wish.level], "minutes": float(MINUTES[wish.level])},
    }


def proposal_name(model: str) -> str:
    """The name of a proposed graph: the model's, in the characters that a name may have."""
    stem = re.sub(r"\.onnx$", "", model)
    return (re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "model")[:100]


def _kept_values(nodes: Mapping[str, Template], priors: Sequence[Prior]) -> dict[str, dict[str, list[Any]]]:
    """Node id -> parameter -> values that no cut takes out."""
    cut = [(n, k, v) for p in priors for n, values in p.values.items() for k, v in values.items()]
    return {
        node: {
            name: [value for value, _ in values if (node, name, value) not in cut]
            for name, values in template.search.items()
        }
        for node, template in nodes.items()
    }


def _runtime(facts: Facts) -> list[Decision]:
    reason = check_runtime(facts)
    return [] if reason is None else [Decision("not on this machine", reason.text)]


def _decisions(
    wish: ProposalOptions, given: Given, target: TargetSpec, flows: Mapping[str, Flow], reasons: Mapping[str, Reason]
) -> list[Decision]:
    """What was decided, in the reader's order: target, level, precisions, upgrades, data."""
    model = given.inspection
    made = [
        Decision(f"target {target.device}, {target.execution_provider}", "as asked" if _asked(wish) else "the default"),
        Decision(f"level {wish.level}", _LEVELS[wish.level]),
    ]
    made += [Decision(f"no {node}", reason.text) for node, reason in reasons.items() if not TEMPLATES[node].lossy]
    for precision, flow in flows.items():
        tried = [node for node in flow.nodes if node not in reasons]
        if tried:
            made.append(Decision(f"{precision}: {', '.join(tried)}", flow.why))
            made += [Decision(f"no {n}", reasons[n].text) for n in flow.nodes if n in reasons]
        elif flow.nodes:
            made.append(Decision(f"no {precision}", "; ".join(reasons[n].text for n in flow.nodes)))
        elif precision != "fp32":
            made.append(Decision(f"no {precision}", flow.why))
    if not floats_fit(given, target):
        made.append(Decision("no single precision", f"{model.bytes} bytes are more than the target's {target.memory}"))
    made += _preparations(given, target)
    return [*made, Decision("quality", _quality(given))]


def _quality(given: Given) -> str:
    if given.evaluation:
        return "judged on the labels" if given.labels else "judged by closeness to the source model on the data"
    if given.fidelity:
        return "judged by closeness to the source model on made-up inputs"
    return "nothing lossy is tried, because there is no data to judge it by"


def _preparations(given: Given, target: TargetSpec) -> list[Decision]:
    model, made = given.inspection, []
    if model.ir_version < LOWEST_IR:
        made.append(Decision("ir upgrade", f"the file has IR version {model.ir_version}"))
    opset = model.opsets.get("", 0)
    if 0 < opset < LOWEST_OPSET:
        made.append(Decision("opset upgrade, tried with and without", f"the model has opset {opset}"))
    if needs_static_shapes(given, target):
        made.append(Decision("fixed shapes", f"{target.execution_provider} takes no open ones"))
    return made


def _asked(wish: ProposalOptions) -> bool:
    return wish.device is not None or wish.execution_provider is not None


_LEVELS: Final = (
    "lossless passes only",
    "passes that are equal up to rounding",
    "lossy passes that need no data, few values each",
    "every pass and value that may help",
)
