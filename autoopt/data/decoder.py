"""Decoders with a key-value cache: what their inputs mean, and values for those that follow from a prompt.

Planning recognizes them too, so numpy is imported late.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import numpy as np

    from autoopt.data.dataset import Array, Feed
    from autoopt.model.inspection import Inspection

TOKENS: Final = ("input_ids", "decoder_input_ids")
"""Names of inputs that hold the tokens of a text."""
MASKS: Final = ("attention_mask", "decoder_attention_mask")
POSITIONS: Final = ("position_ids",)
BRANCHES: Final = ("use_cache_branch",)
LAST: Final = ("num_logits_to_keep", "logits_to_keep")
"""Inputs that limit the scores to the last positions; 0 for all of them."""
CACHE_RANKS: Final = (4, 5)
"""Dimensions of a cache: (batch, heads, sequence, size of a head), keys and values in one if there is one more."""


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

    def outputs(self, names: Collection[str]) -> dict[str, str]:
        """Find the output that holds the new cache for each cache input: output -> input.

        Empty if one of them has none among `names`.
        """
        pairs = {}
        for past in self.cache:
            present = next((name for name in _present_names(past) if name in names), None)
            if present is None:
                return {}
            pairs[present] = past
        return pairs


def decoder_of(shapes: Mapping[str, Sequence[int | str | None] | None]) -> Decoder | None:
    """Recognize a decoder with a cache by the names and shapes of its inputs; None for any other model."""
    tokens = first_of(TOKENS, shapes)
    if tokens is None or len(shapes[tokens] or ()) != 2:
        return None
    cache = _cache_axes(shapes)
    if not cache:
        return None
    mask = first_of(MASKS, shapes)
    if mask is not None and len(shapes[mask] or ()) != 2:
        mask = None
    return Decoder(tokens, mask, first_of(POSITIONS, shapes), first_of(BRANCHES, shapes), first_of(LAST, shapes), cache)


class NamedShape(Protocol):
    """An input of a model as inspections and sessions describe it."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> Sequence[int | str | None] | None: ...


def decoder_with(inputs: Iterable[NamedShape]) -> Decoder | None:
    """Recognize a decoder with a cache that has these inputs; None for any other model."""
    return decoder_of({value.name: value.shape for value in inputs})


def decodes(inspection: Inspection) -> bool:
    """True for a model that takes a cache and returns it."""
    decoder = decoder_with(inspection.inputs)
    return decoder is not None and bool(decoder.outputs(inspection.output_names))


def first_of(names: Iterable[str], existing: Container[str]) -> str | None:
    """The first of these names that exists; None if none does."""
    return next((name for name in names if name in existing), None)


def _cache_axes(shapes: Mapping[str, Sequence[int | str | None] | None]) -> dict[str, int]:
    """Find the inputs that take the decoder's own cache, each with the axis that grows with the tokens."""
    axes = {}
    for name, shape in shapes.items():
        is_own = name.startswith("past") and ".encoder." not in name and "cross" not in name
        if not is_own or shape is None or len(shape) not in CACHE_RANKS:
            continue
        axis = _sequence_axis(shape)
        if axis is not None:
            axes[name] = axis
    return axes


def _sequence_axis(shape: Sequence[int | str | None]) -> int | None:
    """Find the axis that grows with the tokens: the open one after the batch, one with a telling name first."""
    batch = len(shape) - max(CACHE_RANKS[0], len(shape) - 1)
    open_axes = [axis for axis in range(batch + 1, len(shape)) if not isinstance(shape[axis], int)]
    for axis in open_axes:
        if any(part in str(shape[axis]).lower() for part in ("past", "seq", "len")):
            return axis
    return open_axes[0] if open_axes else None


def _present_names(past: str) -> tuple[str, ...]:
    """Names that exporters give the output of a cache: `present.0.key` for `past_key_values.0.key`, ..."""
    return (
        past.replace("past_key_values", "present", 1),
        past.replace("past", "present", 1),
        past.replace("past_key_values", "present_key_values", 1),
    )


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
    aligned = dict(feed)
    for name in decoder.derived:
        if name in feed:
            aligned[name] = decoder.derive(name, feed, feed[name].dtype)
    if decoder.mask in feed:
        assert decoder.mask is not None
        aligned[decoder.mask][1:, : decoder.past_length(feed) // 2] = 0
    return aligned
