"""The user's prior knowledge: `prefer:`, `forbid:`, `require:`."""

from __future__ import annotations

from pydantic import Field, JsonValue, model_validator

from autoopt.spec.graph import Path
from autoopt.spec.source import FieldError
from autoopt.spec.strict_model import StrictModel


class PriorSpec(StrictModel):
    """A statement about chains, or about parameter values in them. A bare text `a -> b` is a whole chain.

    `chain`: exactly this chain. `nodes`: every chain that has all these nodes, and none of `without`. Neither: every
    chain. `values`: about points with these values; without it, about whole chains.
    """

    chain: Path | None = None
    """Exactly this chain: node ids, or `a -> b`."""
    nodes: Path | None = None
    """Every chain that has all these nodes."""
    without: Path = ()
    """Nodes that a chain must not have for the rule to apply."""
    values: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Node id -> parameter -> value; all of them together."""
    reason: str = ""
    """Shown in plans, next to what it excludes or favours."""

    @classmethod
    def expand(cls, value: object) -> object:
        """Convert a bare chain to the full form."""
        if isinstance(value, str | list):
            return {"chain": value}
        return value

    @model_validator(mode="after")
    def _check(self) -> PriorSpec:
        if self.chain is not None and self.nodes is not None:
            raise FieldError("has both chain and nodes", remedy="remove one of them")
        if self.without and self.nodes is None:
            raise FieldError("has without, but no nodes", remedy="name the nodes that the chains have")
        if self.chain is None and self.nodes is None and not self.values:
            raise FieldError("is empty", remedy="give chain, nodes or values")
        if not all(self.values.values()):
            raise FieldError("names a node without values", place=("values",))
        return self


class PreferSpec(PriorSpec):
    """Chains or values to favour."""

    weight: float = Field(default=2.0, gt=0, le=1000)
    """Multiplies the expected improvement of the chains; values are tried first."""
