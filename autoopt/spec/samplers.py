"""The samplers that `search.sampler` may name: the one list of them.

A new sampler is one module in `autoopt.search.samplers` with a `create` function, and one line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias

from autoopt.errors import did_you_mean
from autoopt.spec.source import FieldError

StrategyName: TypeAlias = Literal["unified", "per-chain"]
SamplerOption: TypeAlias = Literal["with_replacement", "min_expected_improvement"]


@dataclass(frozen=True)
class SamplerInfo:
    """A sampler by its name in dag.yaml."""

    name: str
    module: str
    """Module of `autoopt.search.samplers` that holds its `create`."""
    strategies: tuple[StrategyName, ...] = ("per-chain",)
    options: tuple[SamplerOption, ...] = ()
    """Fields of the search section that only some samplers take."""
    requires: tuple[str, ...] = ()
    """Packages that it imports and that autoopt does not depend on."""


SAMPLERS: Final = (
    SamplerInfo("surrogate", "surrogate", ("unified", "per-chain"), ("min_expected_improvement",)),
    SamplerInfo("exhaustive", "exhaustive"),
    SamplerInfo("random", "uniform", options=("with_replacement",)),
    # Optuna's, by class name; each may also be named without "Sampler" in lower case (`tpe`, `nsga-ii`).
    SamplerInfo("TPESampler", "optuna_sampler", ("unified", "per-chain")),
    SamplerInfo("BruteForceSampler", "optuna_sampler"),
    SamplerInfo("CmaEsSampler", "optuna_sampler", requires=("cmaes",)),
    SamplerInfo("GPSampler", "optuna_sampler", requires=("scipy", "torch")),
    SamplerInfo("NSGAIISampler", "optuna_sampler"),
    SamplerInfo("NSGAIIISampler", "optuna_sampler"),
    SamplerInfo("QMCSampler", "optuna_sampler", requires=("scipy",)),
    SamplerInfo("RandomSampler", "optuna_sampler"),
)
DEFAULT_SAMPLER: Final[dict[StrategyName, str]] = {"unified": "surrogate", "per-chain": "tpe"}


def short_name(sampler: SamplerInfo) -> str:
    """`tpe` for `TPESampler`; the name itself for autoopt's own samplers."""
    return sampler.name.removesuffix("Sampler").lower()


def find_sampler(name: str) -> SamplerInfo:
    """Look up a sampler by name or short name.

    Raises:
        FieldError: no such sampler, or it needs a package that is not installed.
    """
    sampler = _match(name)
    if sampler is None:
        names = list(map(short_name, SAMPLERS))
        every = dict.fromkeys([*names, *(sampler.name for sampler in SAMPLERS)])
        hint = did_you_mean(name, every) or f"known: {', '.join(dict.fromkeys(names))}"
        raise FieldError(f"unknown sampler {name!r}", remedy=hint)
    for package in sampler.requires:
        if find_spec(package) is None:
            reason = f"sampler {name!r} needs the package {package}, which is not installed"
            raise FieldError(reason, remedy=f"pip install {package}")
    return sampler


def _match(name: str) -> SamplerInfo | None:
    for sampler in SAMPLERS:
        if sampler.name == name:
            return sampler
    simple_name = name.lower().replace("_", "").replace("-", "")
    for sampler in SAMPLERS:
        if sampler.name.endswith("Sampler") and short_name(sampler) == simple_name:
            return sampler
    return None
