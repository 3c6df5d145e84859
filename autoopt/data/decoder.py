"""Decoders with a key-value cache: what their inputs mean, and values for those that follow from a prompt.

Planning recognizes them too, so numpy is imported late.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoopt.model.roles import DECODER_INPUTS, Kind, Role, cache_outputs

if TYPE_CHECKING:
    import numpy as np

    from autoopt.data.dataset import Array, Feed
    from autoopt.model.inspection import Inspection


@dataclass(frozen=True)
class Decoder:
    """The inputs of a decoder that takes the keys and values of earlier tokens and returns them with the new ones.

    As Optimum and onnxruntime-genai export it: `input_ids`, `past_key_values.0.key`, ..., and usually `attention_mask`
    (batch, past and new tokens) and `position_ids` (batch, new tokens). None for an input that the model lacks.
    """

    tokens: str
    mask: str | None
    positions: str | None
    branch: str | None
    """Tells a model with two branches if the cache has anything."""
    last: str | None
    cache: Mapping[str, int]
    """Axis of the sequence by input."""

    @property
    def derived(self) -> tuple[str, ...]:
        """Inputs whose value follows from the tokens and the cache."""
        names = (self.mask, self.positions, self.branch, self.last)
        return tuple(name for name in names if name is not None)

    def past_length(self, feed: Mapping[str, Array]) -> int:
        """Count the tokens in the cache."""
        for name, axis in self.cache.items():
            if name in feed:
                return int(feed[name].shape[axis])
        return 0

    def derive(self, name: str, feed: Mapping[str, Array], dtype: np.dtype[np.generic]) -> Array:
        """Make the value of one of the `derived` inputs: a mask of ones, positions that follow the cache, and so on.

        The feed holds the tokens (batch, new tokens), and the cache unless it is empty.
        """
        import numpy as np

        batch, count = feed[self.tokens].shape
        past = self.past_length(feed)
        if name == self.branch:
            return np.full(1, past > 0, dtype)
        if name == self.last:
            return np.asarray(0, dtype)
        if name == self.mask:
            return np.ones((batch, past + count), dtype)
        return np.broadcast_to(np.arange(past, past + count), (batch, count)).astype(dtype)

    def derived_values(self, feed: Mapping[str, Array]) -> Feed:
        """Make anew the values of the `derived` inputs that a feed has."""
        return {name: self.derive(name, feed, feed[name].dtype) for name in self.derived if name in feed}

    def outputs(self, names: Collection[str]) -> dict[str, str]:
        """Find the output that holds the new cache for each cache input: output -> input.

        Empty if one of them has none among `names`.
        """
        return cache_outputs(self.cache, names)


def decoder_of(roles: Mapping[str, Role]) -> Decoder | None:
    """The decoder with a cache whose inputs have these roles; None for any other model."""
    cache = {name: role.axes[0] for name, role in roles.items() if role.kind == "cache"}
    tokens = _own_input("tokens", roles)
    if not cache or tokens is None:
        return None
    mask, positions = _own_input("token mask", roles), _own_input("positions", roles)
    branch, last = _own_input("cache switch", roles), _own_input("kept scores", roles)
    return Decoder(tokens, mask, positions, branch, last, cache)


def _own_input(kind: Kind, roles: Mapping[str, Role]) -> str | None:
    """The decoder's own input of a kind; None without one."""
    for name, known in DECODER_INPUTS.items():
        if known == kind and name in roles and roles[name].kind == kind:
            return name
    return None


def decodes(inspection: Inspection) -> bool:
    """True for a model that takes a cache and returns it."""
    return any(role.kind == "cache" for role in inspection.output_roles.values())


def empty_cache(shape: Sequence[int | str | None], axis: int, batch: int, dtype: np.dtype[np.generic]) -> Array:
    """Make the cache before the first token; dimensions that are open besides the sequence take the batch size."""
    import numpy as np

    sizes = [size if isinstance(size, int) and size > 0 else batch for size in shape]
    sizes[axis] = 0
    return np.zeros(sizes, dtype)


def align(feed: Mapping[str, Array], decoder: Decoder) -> Feed:
    """Replace mask, positions and branch by those that fit the tokens and the cache of a feed.

    All but the first sequence of a batch are padded: the first half of their cache is masked.
    """
    aligned = {**feed, **decoder.derived_values(feed)}
    if decoder.mask in feed:
        assert decoder.mask is not None
        aligned[decoder.mask][1:, : decoder.past_length(feed) // 2] = 0
    return aligned
