"""A trial or model by its chain with the searched parameters, and the caveats that all models share."""

from __future__ import annotations

from autoopt.report.words.formatting import params_text
from autoopt.results import ModelResult, RunResult, Trial
from autoopt.space import Point


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
