"""The passes of a model and their settings in short words: `fold -> static(Percentile, per_channel)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from autoopt.errors import one_line
from autoopt.report.words.formatting import params_text, plural
from autoopt.results import ModelResult, RunResult, Trial
from autoopt.space import Point

ARROW = " -> "
OFF: Final[Sequence[object]] = (None, False, "none", [], {})
"""Values that leave something off or to the runtime."""


def steps_text(chain: str, point: Point, width: int = 0) -> str:
    """The nodes of a chain, each with the searched settings that are on.

    A text longer than `width` characters (0: any length) loses passes at its beginning, because chains differ at their
    ends, then settings.
    """
    nodes = chain.split(ARROW)
    steps = []
    for node in nodes:
        values = sorted(point.get(node, {}).items())
        settings = [_setting(name, value) for name, value in values if value not in OFF]
        steps.append(f"{node}({', '.join(settings)})" if settings else node)
    text = one_line(ARROW.join(steps))
    for parts in _shorter(nodes, steps):
        if not width or len(text) <= width:
            return text
        text = one_line(ARROW.join(parts))
        if len(parts) < len(nodes):
            text = f"… {text}"
    return tail(text, width)


def _shorter(nodes: Sequence[str], steps: Sequence[str]) -> Iterator[Sequence[str]]:
    """The last passes, fewer and fewer, down to the last one without its settings."""
    for first in range(1, len(steps) - 1):
        yield steps[first:]
    yield [*nodes[-2:-1], steps[-1]]
    yield nodes[-2:]
    yield nodes[-1:]


def _setting(name: str, value: object) -> str:
    if value is True:
        return name
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "+".join(map(str, value))
    if name == "intra_op_num_threads" and isinstance(value, int):
        return plural(value, "thread")
    return f"{name}={value}"


def tail(text: str, width: int) -> str:
    """The end of a text that fits, because chains differ at their ends; the whole text for a width of 0."""
    if not width:
        return text
    width = max(width, 10)
    if len(text) <= width:
        return text
    return f"…{text[len(text) - width + 1 :]}"


def trial_title(trial: Trial) -> str:
    """A trial's number, chain and parameters: `trial 3: fold -> static [static: per_channel=true]`."""
    return f"trial {trial.number}: {_with_params(trial.short_chain, trial.point)}"


def chain_text(model: ModelResult) -> str:
    """`simplify -> static [static: per_channel=true] *`: the searched parameters, and a star if there are caveats.

    Passes that changed nothing are left out.
    """
    text = _with_params(model.short_chain, model.point)
    if model.flags:
        text += " *"
    return text


def shared_flags(result: RunResult) -> frozenset[str]:
    """The caveats that all of several candidates have."""
    candidates = [set(model.flags) for model in result.models if not model.is_source]
    if len(candidates) < 2:
        return frozenset()
    return frozenset(set.intersection(*candidates))


def _with_params(chain: str, point: Point) -> str:
    shown = chain.split(" -> ")
    params = params_text({node: values for node, values in point.items() if node in shown})
    if not params:
        return chain
    return f"{chain} [{params}]"
