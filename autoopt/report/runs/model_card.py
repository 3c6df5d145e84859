"""The README.md of an exported package: what the model is, how it was made and measured, and how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from autoopt.json_codec import JsonValue
from autoopt.report.runs.measurement import disturbance
from autoopt.report.words.change import change_text
from autoopt.report.words.formatting import constraint_text, percent, plural, short, value_text
from autoopt.report.words.limits import figure_text
from autoopt.report.words.markup import markdown_code, markdown_text, shell_word
from autoopt.report.words.verdict import gains
from autoopt.results import ModelResult, RunResult
from autoopt.results.figures import is_quality, metrics_of

USE: Final = """\
With autoopt installed, `session = autoopt.load("FOLDER")` opens the model as it was measured. Without it:

```python
import json
import onnxruntime as ort

measured = json.load(open("session.json"))
options = ort.SessionOptions()
for name, value in measured["session_options"].items():
    setattr(options, name, getattr(type(getattr(options, name)), value) if isinstance(value, str) else value)
for name, value in measured["session_config_entries"].items():
    options.add_session_config_entry(name, value)
session = ort.InferenceSession("MODEL", options, **measured["inference_session"])
```
"""


SET_USE: Final = """\
    pip install -r requirements.txt
    python run.py

`run.py` needs only onnxruntime and numpy. It runs the models together once, times them and the source models in turns,
and says if the gain shows on your machine. `model_set.json` says how the models connect; `model_set.py` runs them:

```python
from run import load

session = load()
outputs = session.run(None, inputs)  # arrays by name
```
{generate}
The folder of each model is a package of its own.
"""
GENERATE: Final = """
`session.generate(inputs, count)` returns the most probable tokens after the prompt, which is one of the inputs.
"""
GENERATED_INPUTS: Final = "`inputs.npz` holds generated inputs, because there was no data.\n"
UNJUDGED: Final = "- There was no data: nothing here says how good the model is at its task."
NO_INPUTS: Final = "The data could not be read when this package was written: name inputs with `--inputs FILE.npz`.\n"
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


def model_card(card: Card) -> str:
    """Write the model card in Markdown."""
    file_name = PurePath(card.model.path).name or "model.onnx"
    sections = [
        _title(card),
        _figures_table(card),
        _section("Try it", _try_text(card)),
        _section("Use it", USE.replace("FOLDER", "this/folder").replace("MODEL", file_name)),
        _section("How it was made", _making_text(card)),
        _section("How it was measured", _measuring_text(card)),
        _section("Limits", _limits_text(card)),
    ]
    return "\n".join(sections)


def _set_summary(result: RunResult, model: ModelResult) -> str:
    """The result of a model set in one sentence or two."""
    if result.is_interim:
        return "The best models so far of an unfinished or cancelled run. They were not measured together yet."
    if model.is_source:
        return "The source models, unchanged: no others were measurably better together."
    return f"Together: {', '.join(gains(result, model)) or 'see the tables'}."


def set_card(
    result: RunResult, model: ModelResult, *, has_inputs: bool, generated_inputs: bool, generates: bool
) -> str:
    """Write the model card of a model set in Markdown.

    `has_inputs`: the package holds the inputs of one inference. `generated_inputs`: there was no data. `generates`: one
    of the models generates tokens.
    """
    title = f"{' + '.join(part.name for part in result.parts)}"
    lines = [
        f"# {title}, optimized by autoopt",
        "",
        _set_summary(result, model),
        "",
        "| model | share of the time | made by | change, by itself |",
        "|---|---|---|---|",
    ]
    for part in result.parts:
        change = "-" if part.model.is_source else ", ".join(gains(part.result, part.model))
        link, chain = f"[{part.name}]({part.name}/README.md)", part.model.short_chain
        lines.append(f"| {link} | {percent(part.share)} | `{chain}` | {change} |")
    use = SET_USE.format(generate=GENERATE if generates else "")
    if not has_inputs:
        use += NO_INPUTS
    elif generated_inputs:
        use += GENERATED_INPUTS
    lines += ["", _section("Try it", use)]
    limits = [UNJUDGED] if generated_inputs else []
    limits += [f"- required: {constraint_text(constraint)}" for constraint in result.constraints]
    limits += [f"- {markdown_text(flag)}" for flag in model.flags]
    return "\n".join([*lines, _section("Limits", "\n".join(limits) + "\n")])


def _title(card: Card) -> str:
    name = markdown_text(card.name.partition(" · ")[0])
    if card.model.is_source:
        return f"# {name}\n\nThe source model, unchanged: autoopt found no candidate that was measurably better.\n"
    summary = ", ".join(gains(card.result, card.model)) or "see the table"
    return f"# {name}, optimized by autoopt\n\nMade by {markdown_code(card.model.short_chain)}: {summary}.\n"


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _figures_table(card: Card) -> str:
    lines = ["| | source model | this model | change |", "|---|---|---|---|"]
    source = card.result.baseline.metrics
    for metric in metrics_of(card.result):
        if metric in card.model.metrics:
            before = figure_text(metric, source.get(metric))
            change = change_text(metric, card.model, source)
            if is_quality(metric):
                change = _items_text(card)
            lines.append(f"| {metric} | {before} | {figure_text(metric, card.model.metrics[metric])} | {change} |")
    return "\n".join(lines) + "\n"


def _items_text(card: Card) -> str:
    measured = card.model.measured
    if card.model.is_source or measured.items is None:
        return ""
    text = f"on {plural(measured.items, 'item')}"
    if measured.identical_outputs:
        return f"identical outputs {text}"
    return text


def _try_text(card: Card) -> str:
    text = "    pip install -r requirements.txt\n    python run.py\n\n"
    text += (
        "`run.py` needs only onnxruntime and numpy. It runs one inference, times this model and the source model in\n"
    )
    text += (
        "turns, and says if the gain shows on your machine. `--source MODEL` names the source model if it has moved.\n"
    )
    if not card.has_inputs:
        text += NO_INPUTS
    elif card.generated_inputs:
        text += GENERATED_INPUTS
    else:
        text += "`inputs.npz` holds the inputs of one inference, taken from your evaluation data.\n"
    return text


def _making_text(card: Card) -> str:
    source = markdown_code(card.source) if card.source else "the source model"
    lines = [f"From {source} (SHA-256 `{card.source_digest}`)."]
    if card.licence:
        lines.append(f"Its metadata state the licence: {markdown_text(card.licence)}.")
    else:
        lines.append("Its metadata state no licence; the terms of the source model apply to this one.")
    lines.append("")
    for number, (name, params) in enumerate(card.steps, 1):
        values = ", ".join(f"{key}={value_text(value)}" for key, value in sorted(params.items()))
        lines.append(f"{number}. {markdown_code(name)}" + (f": {markdown_text(values)}" if values else ""))
    if card.model.session_options:
        values = ", ".join(f"{key}={value_text(value)}" for key, value in sorted(card.model.session_options.items()))
        lines.append(f"{len(card.steps) + 1}. session options: {values}")
    if card.steps:
        # The path, as the package itself has a file named like most sources: model.onnx.
        source = shell_word(card.source) if card.source else "SOURCE"
        command = markdown_code(f"autoopt replay recipe.json --model {source}")
        lines += ["", f"{command} makes it again from the source model."]
    return "\n".join(lines) + "\n"


def _measuring_text(card: Card) -> str:
    environment, measured = card.environment, card.model.measured
    cpu = environment.get("cpu")
    lines = []
    if isinstance(cpu, Mapping):
        lines.append(f"- CPU: {cpu.get('model')}, {cpu.get('cores')} cores")
    lines.append(f"- system: {environment.get('os')}, {environment.get('python')}")
    lines.append(f"- runtime: {', '.join(f'{name} {version}' for name, version in card.runtime.items())}")
    session = [card.provider, "the runtime's number of threads"]
    if measured.threads:
        session[1] = plural(measured.threads, "thread")
    session.append(f"batch size {measured.batch_size or 1}")
    lines.append(f"- session: {', '.join(session)}; `session.json` has all of it")
    if measured.rounds:
        times = plural(measured.rounds, "time")
        text = f"- source and this model in turns in one process, {times}"
        if measured.disturbed_rounds:
            text += f"; {disturbance(measured)}, which the ranges include"
        lines.append(text)
    lines.append(f"- run {short(card.result.run)}; ranges are 95 % confidence intervals")
    return "\n".join(lines) + "\n"


def _limits_text(card: Card) -> str:
    lines = ["- The gain belongs to this machine, this runtime and this session. Run `run.py` where you deploy."]
    if any(name == SPECIALIZE for name, _ in card.steps):
        text = "- It accepts less than the source model:"
        lines.append(f"{text} `narrowed_inputs` in `session.json` lists the inputs and sizes that are fixed.")
    lines += [f"- {markdown_text(warning)}" for warning in card.result.warnings]
    if card.generated_inputs:
        lines.append(UNJUDGED)
    lines += [f"- required: {constraint_text(constraint)}" for constraint in card.result.constraints]
    lines += [f"- {markdown_text(flag)}" for flag in card.model.flags]
    if card.result.undecided:
        lines.append(f"- undecided: {markdown_text(card.result.undecided)}")
    return "\n".join(lines) + "\n"
