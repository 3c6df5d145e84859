"""The decisions of a proposal in words, in the reader's order: target, level, skipped passes, precisions, data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoopt.dag.compiler.plan import Decision
from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.proposal.inputs import NEURAL_OPS, ProposalInputs, conditions, hold, is_tiny, words
from autoopt.dag.proposal.templates import MINUTES, TABLES, TEMPLATES, TRIALS, Method
from autoopt.errors import one_line
from autoopt.model.inspection import Inspection
from autoopt.model.roles import Role
from autoopt.option_names import option
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.spec.targets import TargetSpec, describe_threads
from autoopt.tuning import PROPOSAL

NO_DATA: Final = "no-data"
"""Rule of the reasons that data would remedy."""

_LEVELS: Final = (
    "lossless passes only",
    "passes that change results at most by rounding",
    "also lossy passes that need no calibration data, with few values each",
    "all passes and values",
)
LISTED_NAMES: Final = 3
"""Names of inputs that are written out."""


def decisions(
    options: ProposalOptions,
    inputs: ProposalInputs,
    target: TargetSpec,
    methods: Mapping[str, Method],
    reasons: Mapping[str, Reason],
) -> Iterator[Decision]:
    """The decisions of a proposal among some precisions; `reasons`: node id -> the reason why it is ruled out."""
    is_default = bool(options.target_name) or (options.device is None and options.execution_provider is None)
    origin = "default" if is_default else "as requested"
    yield Decision(f"target {target.device}, {target.execution_provider}", origin, is_detail=is_default)
    if target.thread_choices:
        choices = describe_threads(target.threads)
        text = f"trying {choices}; your model is measured with onnxruntime's default"
        yield Decision("threads", text, tried=choices)
    yield Decision(f"level {options.level}", _LEVELS[options.level], is_detail=True)
    yield from _roles("input", inputs.inspection.input_roles)
    yield from _roles("output", inputs.inspection.output_roles)
    effort = effort_for(inputs.inspection, options.level)
    if effort.reason:
        yield Decision(f"at most {effort.trials} trials", effort.reason)
    yield from _skipped(reasons)
    yield from _precisions(methods, reasons, as_requested=options.precision is not None)
    yield from _without_integers(inputs, methods, reasons)
    yield from _changes(options.level, inputs, target, reasons)
    if inputs.evaluation:
        yield Decision("quality", _quality(inputs), is_detail=True)
    else:
        yield from _without_data(options, methods, reasons)


def _roles(what: str, roles: Mapping[str, Role]) -> Iterator[Decision]:
    """The roles of the inputs or outputs with their evidence: those of a kind together."""
    names_by_text: dict[str, list[str]] = {}
    for name, role in roles.items():
        if role.kind != "other":
            names_by_text.setdefault(f"{role.kind}, by {role.evidence}", []).append(name)
    for text, names in names_by_text.items():
        yield Decision(f"{what} {_some(names)}", text, is_detail=True)


def _some(names: Sequence[str]) -> str:
    """The first of the model's own names, and how many more there are."""
    listed = [one_line(name) for name in names[:LISTED_NAMES]]
    if len(names) > LISTED_NAMES:
        listed.append(f"{len(names) - LISTED_NAMES} more")
    return _listed(listed)


def _without_integers(
    inputs: ProposalInputs, methods: Mapping[str, Method], reasons: Mapping[str, Reason]
) -> Iterator[Decision]:
    """The recurrent layers that int8 leaves in float: of these, onnxruntime computes only LSTM in integers."""
    layers = sorted(inputs.inspection.ops & {"GRU", "RNN"})
    int8 = methods.get("int8")
    if layers and int8 is not None and any(node not in reasons for node in int8.nodes):
        yield Decision(f"{_listed(layers)} not in int8", "onnxruntime has 8-bit kernels only for LSTM")


def _changes(
    level: int, inputs: ProposalInputs, target: TargetSpec, reasons: Mapping[str, Reason]
) -> Iterator[Decision]:
    """The changes that model, data or target ask for."""
    model = inputs.inspection
    facts = conditions(inputs, target, level)
    if "floats_fit" not in facts:
        yield Decision("fp32 not tried", f"its {model.bytes} bytes exceed the target's memory of {target.memory}")
    if "old_ir" in facts and "ir" not in reasons:
        yield Decision("IR upgrade", f"the file has IR version {model.ir_version}", is_detail=True)
    for change in [each for each in TABLES.changes if each.node not in reasons and hold(each.when, facts)]:
        why = change.why.format_map(words(change.node, inputs, target))
        yield Decision(change.what, why, tried=change.what)
    if inputs.narrowing and "specialize" not in reasons:
        remedy = f"{option('keep_signature', value=True)} leaves this out"
        yield Decision("specializing to the data", f"{inputs.narrowing.text}; {remedy}")
    if model.overridable:
        text = f"passes may fix them, so that callers cannot set {_some(model.overridable)}"
        yield Decision("inputs with a default", text)
    if "open_shapes" in facts:
        yield Decision("fixed shapes", f"{target.execution_provider} accepts no dynamic ones")


def _quality(inputs: ProposalInputs) -> str:
    if inputs.labels:
        return "measured on the labels"
    return "compared with the source model's outputs on the data"


def _without_data(
    options: ProposalOptions, methods: Mapping[str, Method], reasons: Mapping[str, Reason]
) -> Iterator[Decision]:
    """The way to judge lossy precisions without data, if any is tried."""
    lossy: list[str] = []
    for precision, method in methods.items():
        if any(TEMPLATES[node].lossy and node not in reasons for node in method.nodes):
            lossy.append(precision)
    if not lossy:
        return
    verb = "is" if len(lossy) == 1 else "are"
    judged = f"{_listed(lossy)} {verb} only compared with your model's outputs on generated inputs"
    result = "shown as unverified"
    if options.accepts_unverified:
        result = "check the chosen model before you use it"
    remedy = f"To judge by accuracy, add {option('data', of='FILE')}"
    yield Decision("no data", f"{judged}: {result}. {remedy}")


def _skipped(reasons: Mapping[str, Reason]) -> Iterator[Decision]:
    """The lossless passes that are skipped, together if they share their reason."""
    skipped: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        template = TEMPLATES[node]
        if not template.lossy:
            skipped.setdefault(reason.text, []).append(template.pass_name.replace("_", " "))
    for text, names in skipped.items():
        yield Decision(f"{', '.join(names)} skipped", text, is_detail=True)


def _precisions(
    methods: Mapping[str, Method], reasons: Mapping[str, Reason], *, as_requested: bool
) -> Iterator[Decision]:
    """The methods that are tried; then all others, together if they share their reason.

    A run mentions those that are not tried if the user requested the precision, or if data would change it.
    """
    for precision, method in methods.items():
        tried = [node for node in method.nodes if node not in reasons]
        if tried:
            names = precision if len(method.nodes) == 1 else f"{precision} ({', '.join(tried)})"
            yield Decision(precision, f"trying {method.text.format(nodes=_listed(tried))}", tried=names)
    remedied = {reason.text for reason in reasons.values() if reason.rule == NO_DATA}
    for text, left_out in _not_tried(methods, reasons).items():
        is_detail = not as_requested and text not in remedied
        yield Decision(f"{', '.join(left_out)} not tried", text, is_detail=is_detail)


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = names
    if not others:
        return last
    return f"{', '.join(others)} and {last}"


def _not_tried(methods: Mapping[str, Method], reasons: Mapping[str, Reason]) -> dict[str, list[str]]:
    """Reason -> the precisions, or the nodes of a precision, that are not tried for it."""
    not_tried: dict[str, list[str]] = {}
    for precision, method in methods.items():
        if not method.nodes and precision != "fp32":
            not_tried.setdefault(method.text, []).append(precision)
        ruled_out = {node: reasons[node].text for node in method.nodes if node in reasons}
        texts = set(ruled_out.values())
        if len(ruled_out) == len(method.nodes) and len(texts) == 1:
            not_tried.setdefault(texts.pop(), []).append(precision)
            continue
        for node, text in ruled_out.items():
            not_tried.setdefault(text, []).append(f"{precision} {node}")
    return not_tried


@dataclass(frozen=True)
class Effort:
    """The budget of a search, and the reason if it is smaller than the level's."""

    trials: int
    minutes: int
    reason: str = ""


def effort_for(model: Inspection, level: int) -> Effort:
    """The budget for a model at a level."""
    trials, minutes = TRIALS[level], MINUTES[level]
    reason = ""
    if not model.ops & NEURAL_OPS:
        reason = "the model has no matrix product or convolution that a pass could make faster"
    elif is_tiny(model):
        reason = f"the model has {model.parameters} weights; most of an inference is the call itself"
    if not reason:
        return Effort(trials, minutes)
    return Effort(min(trials, PROPOSAL.few_trials), min(minutes, PROPOSAL.few_minutes), reason)
