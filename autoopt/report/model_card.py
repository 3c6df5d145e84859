"""The README.md of an exported package: what the model is, how it was made and measured, and how to use it.

The templates `card.md` and `set_card.md` hold the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from autoopt.json_codec import JsonValue
from autoopt.report.measurement import disturbance
from autoopt.report.pages import render
from autoopt.report.run_view import changes_from_source
from autoopt.report.words.formatting import constraint_text, percent, plural, settings_text
from autoopt.report.words.markup import shell_word
from autoopt.report.words.verdict import gains
from autoopt.results import ModelResult, RunResult

SPECIALIZE: Final = "specialize_inputs"
"""The pass after which a model accepts less than its source."""


@dataclass(frozen=True)
class Card:
    """The facts of a model card."""

    result: RunResult
    """The run; its baseline is the source model."""
    model: ModelResult
    name: str
    """Name of the run: the model's name, maybe with a target."""
    source: str
    """Path or URL of the source model; empty if unknown."""
    source_digest: str
    licence: str
    """The source model's own metadata; empty if they state none."""
    steps: tuple[tuple[str, Mapping[str, object]], ...]
    """Passes with their parameters, from the source on."""
    provider: str
    has_inputs: bool = True
    generated_inputs: bool = False
    environment: Mapping[str, JsonValue] = field(default_factory=dict)
    runtime: Mapping[str, str] = field(default_factory=dict)
    """Versions of onnxruntime and numpy."""


@dataclass(frozen=True)
class SetCard:
    """The facts of the card of a model set."""

    result: RunResult
    model: ModelResult
    """The whole set."""
    has_inputs: bool
    """True if the package holds the inputs of one inference."""
    generated_inputs: bool
    """True if there was no data."""
    generates: bool
    """True if one of the models generates tokens."""


def model_card(card: Card) -> str:
    """Write the model card in Markdown."""
    measured, turns = card.model.measured, ""
    if measured.rounds:
        turns = plural(measured.rounds, "time")
        if measured.disturbed_rounds:
            turns += f"; {disturbance(measured)}, which the ranges include"
    return render(
        "card.md",
        card=card,
        own_inputs=True,
        name=card.name.partition(" · ")[0],
        summary=", ".join(gains(card.result, card.model)) or "see the table",
        figures=changes_from_source(card.result, card.model),
        file=PurePath(card.model.path).name or "model.onnx",
        steps=[(name, settings_text(params)) for name, params in card.steps],
        session=settings_text(card.model.session_options),
        # The path, as the package itself has a file named like most sources: model.onnx.
        replay=f"autoopt replay recipe.json --model {shell_word(card.source) if card.source else 'SOURCE'}",
        measuring=_measuring(card),
        turns=turns,
        narrowed=any(name == SPECIALIZE for name, _ in card.steps),
        constraints=list(map(constraint_text, card.result.constraints)),
    )


def _measuring(card: Card) -> list[str]:
    """The machine, the runtime and, last, the session."""
    environment, measured = card.environment, card.model.measured
    cpu = environment.get("cpu")
    lines = []
    if isinstance(cpu, Mapping):
        lines.append(f"CPU: {cpu.get('model')}, {cpu.get('cores')} cores")
    lines.append(f"system: {environment.get('os')}, {environment.get('python')}")
    lines.append(f"runtime: {', '.join(f'{name} {version}' for name, version in card.runtime.items())}")
    threads = plural(measured.threads, "thread") if measured.threads else "the runtime's number of threads"
    return [*lines, f"session: {card.provider}, {threads}, batch size {measured.batch_size or 1}"]


def set_card(card: SetCard) -> str:
    """Write the model card of a model set in Markdown."""
    summary = f"Together: {', '.join(gains(card.result, card.model)) or 'see the tables'}."
    if card.result.is_interim:
        summary = "The best models so far of an unfinished or cancelled run. They were not measured together yet."
    elif card.model.is_source:
        summary = "The source models, unchanged: no others were measurably better together."
    parts = []
    for part in card.result.parts:
        change = "-" if part.model.is_source else ", ".join(gains(part.result, part.model))
        parts.append((part.name, percent(part.share), part.model.short_chain, change))
    return render(
        "set_card.md",
        card=card,
        own_inputs=False,
        title=" + ".join(part.name for part in card.result.parts),
        summary=summary,
        parts=parts,
        constraints=list(map(constraint_text, card.result.constraints)),
    )
