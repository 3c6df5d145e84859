"""Find how the models of a set connect: by what the user says, by equal names, and as exporters name them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Final

from autoopt.data.decoder import Decoder, decoder_of
from autoopt.errors import did_you_mean
from autoopt.model.inspection import Inspection
from autoopt.model.model_set import Generation, ModelSet, Part
from autoopt.spec.source import FieldError

ENCODED: Final = "encoder_hidden_states"
"""Input of a decoder that takes what the encoder gives, whatever its output is called."""
ENCODED_OUTPUTS: Final = ("last_hidden_state", ENCODED, "hidden_states")
ENCODER_MASK: Final = ("encoder_attention_mask", "attention_mask")
"""Input of a decoder that takes the mask of the encoder, and the encoder's own name for it."""
SCORES: Final = ("logits", "lm_logits", "output")
PROMPT: Final = "decoder_input_ids"
TOKENS: Final = (PROMPT, "input_ids")

Inspections = Mapping[str, Inspection]
"""By part, in the order in which the user names them."""


def connect(files: Mapping[str, str], inspections: Inspections, given: Mapping[str, str]) -> ModelSet:
    """Describe a set.

    Args:
        files: Path of each part in the set's folder.
        inspections: The parts.
        given: The user's connections, `part.input` -> `part.output` or an input of the set.

    Raises:
        FieldError: the parts do not connect, or a connection names what does not exist.
    """
    _check(given, inspections)
    generation = _generation(inspections)
    connections: dict[str, str] = {}
    for name, inspection in inspections.items():
        own: frozenset[str] = frozenset()
        if generation is not None and name in (generation.first, generation.further):
            own = generation.own_inputs
        for input_name in inspection.input_names:
            key = f"{name}.{input_name}"
            if key in given:
                connections[key] = given[key]
            elif input_name not in own:
                connections[key] = _source_of(name, input_name, inspections, generation)
    order = _order(connections, inspections, generation)
    return ModelSet({name: Part(files[name]) for name in order}, connections, generation)


def _check(given: Mapping[str, str], inspections: Inspections) -> None:
    """Refuse connections of inputs or outputs that do not exist."""
    inputs: list[str] = []
    outputs: list[str] = []
    for name, inspection in inspections.items():
        inputs += [f"{name}.{value}" for value in inspection.input_names]
        outputs += [f"{name}.{value}" for value in inspection.output_names]
    for target, source in given.items():
        if target not in inputs:
            remedy = did_you_mean(target, inputs) or f"inputs: {', '.join(inputs)}"
            raise FieldError(f"no input {target!r}", place=("connections", target), remedy=remedy)
        if _part_of(source, inspections) is not None and source not in outputs:
            remedy = did_you_mean(source, outputs) or f"outputs: {', '.join(outputs)}"
            raise FieldError(f"no output {source!r}", place=("connections", target), remedy=remedy)


def _part_of(name: str, parts: Iterable[str]) -> str | None:
    """The part in `part.value`; None for an input of the set."""
    part, dot, _ = name.partition(".")
    return part if dot and part in parts else None


def _source_of(part: str, name: str, inspections: Inspections, generation: Generation | None) -> str:
    """Find the source of an input: the one part that gives a value of this name, else an input of the set."""
    # The generation itself connects what decoders give.
    excluded = {part} if generation is None else {part, generation.first, generation.further}
    others = {other: inspection for other, inspection in inspections.items() if other not in excluded}
    outputs = {other: _output_for(name, inspection) for other, inspection in others.items()}
    givers = [f"{other}.{output}" for other, output in outputs.items() if output]
    if len(givers) > 1:
        remedy = f"choose one: connections: {{{part}.{name}: {givers[0]}}}"
        raise FieldError(f"{' and '.join(givers)} both give {part}.{name}", place=("connections",), remedy=remedy)
    if givers:
        return givers[0]
    taken, own_name = ENCODER_MASK
    takes_mask = name == taken and any(own_name in other.input_names for other in others.values())
    return own_name if takes_mask else name


def _output_for(name: str, inspection: Inspection) -> str | None:
    """The output of a part that an input of this name takes; None if it has none."""
    outputs = inspection.output_names
    if name != ENCODED:
        return name if name in outputs else None
    if len(outputs) == 1:
        return outputs[0]
    return _first_of(ENCODED_OUTPUTS, outputs)


def _order(connections: Mapping[str, str], inspections: Inspections, generation: Generation | None) -> list[str]:
    """The parts in an order in which each runs after those that it takes values from."""
    before: dict[str, set[str]] = {name: set() for name in inspections}
    connected: set[str] = set()
    for target, source in connections.items():
        giver, taker = _part_of(source, inspections), _part_of(target, inspections)
        if giver is not None and taker is not None:
            before[taker].add(giver)
            connected |= {giver, taker}
    if generation is not None and generation.first != generation.further:
        before[generation.further].add(generation.first)
        connected |= {generation.first, generation.further}
    for name, inspection in inspections.items():
        if name not in connected:
            values = ", ".join((*inspection.input_names, *inspection.output_names))
            raise FieldError(
                f"{name!r} takes nothing from the other models and gives them nothing ({values})",
                place=("model", name),
                remedy="say what belongs together, connections: {PART.INPUT: PART.OUTPUT}, or optimize it by itself",
            )
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise FieldError(f"the models take values from each other: {circle}", place=("connections",)) from None


@dataclass(frozen=True)
class _Candidate:
    """A part that may be a decoder."""

    name: str
    tokens: str
    logits: str
    decoder: Decoder | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def _candidates(inspections: Inspections) -> Iterator[_Candidate]:
    """The parts that may be decoders: they take tokens, give logits, and have a cache or take what an encoder gives."""
    for name, inspection in inspections.items():
        inputs, outputs = inspection.input_names, inspection.output_names
        tokens, logits = _first_of(TOKENS, inputs), _first_of(SCORES, outputs)
        decoder = decoder_of(inspection.input_roles)
        gives_cache = any(output.startswith("present") for output in outputs)
        if tokens is not None and logits is not None and (decoder or ENCODED in inputs or gives_cache):
            yield _Candidate(name, tokens, logits, decoder, inputs, outputs)


def _generation(inspections: Inspections) -> Generation | None:
    """Recognize the decoder of a set: one model, or one for prompts and one for further tokens; None without one."""
    cached: list[_Candidate] = []
    plain: list[_Candidate] = []
    for candidate in _candidates(inspections):
        (cached if candidate.decoder else plain).append(candidate)
    generation = _with_cache((plain or cached)[0], cached[0]) if cached else None
    if generation is None:
        alone = next((candidate for candidate in plain if ENCODED in candidate.inputs), None)
        generation = _pair(alone, alone) if alone is not None else None
    if generation is not None and set(inspections) == {generation.first, generation.further}:
        return replace(generation, prompt=generation.tokens)  # no encoder takes tokens too
    return generation


def _first_of(names: Iterable[str], existing: Container[str]) -> str | None:
    """The first of these names that exists; None if none does."""
    return next((name for name in names if name in existing), None)


def _with_cache(first: _Candidate, further: _Candidate) -> Generation | None:
    """Match the cache of two decoders, which may be the same one; None if they do not fit."""
    assert further.decoder is not None
    own = further.decoder.outputs(further.outputs)
    # Inputs that take keys and values of the encoder's output.
    cross = tuple(name for name in further.inputs if name.startswith("past") and name not in further.decoder.cache)
    cache = {past: output for output, past in own.items()}
    cache |= {past: past.replace("past_key_values", "present", 1) for past in cross}
    if not own or not set(first.outputs).issuperset(cache.values()) or first.tokens != further.tokens:
        return None
    return replace(_pair(first, further), cache=cache, fixed=cross)


def _pair(first: _Candidate, further: _Candidate) -> Generation:
    """A generation without a cache."""
    inputs = {*first.inputs, *further.inputs}
    return Generation(
        first.name,
        further.name,
        PROMPT,
        first.tokens,
        first.logits,
        mask=_first_of(("attention_mask", "decoder_attention_mask"), inputs),
        positions=_first_of(("position_ids",), inputs),
        branch=_first_of(("use_cache_branch",), inputs),
    )
