"""The cause of a changed night: the best model measured under combinations of what changed."""

from __future__ import annotations

from dataclasses import dataclass

from autoopt.metrics import Estimate


@dataclass(frozen=True)
class Factor:
    """One thing that differs between two nights and can be varied."""

    name: str
    """Name of a library, or of an input of the run: `onnxruntime`, `DAG`, `evaluation data`."""
    before: str
    """Version of a library, digest of an input."""
    after: str

    @property
    def text(self) -> str:
        """`onnxruntime 1.30.0 -> 1.31.1`."""
        return f"{self.name} {self.before} -> {self.after}"


@dataclass(frozen=True)
class Variant:
    """The best model with some factors as in the later night and all others as in the earlier one."""

    changed: tuple[str, ...]
    """Names of the factors that are as in the later night."""
    ratio: Estimate | None = None
    """Its median latency relative to the earlier night's; None if it was not measured."""
    reason: str = ""
    """The reason why it was not measured, or why it need not be."""


@dataclass(frozen=True)
class OperatorDifference:
    """The time of all operators of one type in one inference, in microseconds; 0 for a type that the model lacks."""

    op_type: str
    before: float
    after: float


@dataclass(frozen=True)
class Bisection:
    """The outcome of measuring what changed between two nights."""

    model: str
    sweep: str
    """Id of the later sweep."""
    before: str
    """Id of the earlier sweep; empty for the release of a run that no sweep made."""
    factors: tuple[Factor, ...] = ()
    not_varied: tuple[str, ...] = ()
    """Changes that cannot be varied on this machine, such as another CPU."""
    variants: tuple[Variant, ...] = ()
    """The last night first, then single factors, then pairs."""
    cause: tuple[str, ...] = ()
    """Names of the factors that explain the change together; empty if none do."""
    source: Estimate | None = None
    """Median latency of the source relative to the earlier night's; measured only where the best model's did not
    change, because a faster source also makes the ratio of the best model worse."""
    operators: tuple[OperatorDifference, ...] = ()
    """Profiles of both nights' models, the type whose time changed most first."""
    busy: bool = False
    """True if other programs used the machine during the measurements."""
    seconds: float = 0.0

    @property
    def total(self) -> Variant | None:
        """All factors as in the later night."""
        if not self.variants:
            return None
        return self.variants[0]
