"""Roles of a model's inputs and outputs, inferred from names, types, shapes and the tables that inputs index."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, get_args

from autoopt.errors import InputError, did_you_mean
from autoopt.tuning import KINDS

Dimension: TypeAlias = int | str | None
"""A number, a symbol, or nothing known."""
Kind: TypeAlias = Literal[
    "tokens", "indices", "token mask", "mask", "token types", "positions", "cache", "cache switch", "kept scores",
    "image", "sound", "spectrum", "state", "length", "sample rate",
    "keypoints", "embedding", "token vectors", "other",
]  # fmt: skip

CHANNELS: Final = (1, 3, 4)
CACHE_RANKS: Final = (4, 5)
"""Dimensions of a cache: (batch, heads, sequence, size of a head), keys and values in one if there is one more."""
DECODER_INPUTS: Final[Mapping[str, Kind]] = {
    "input_ids": "tokens",
    "decoder_input_ids": "tokens",
    "attention_mask": "token mask",
    "decoder_attention_mask": "token mask",
    "position_ids": "positions",
    "use_cache_branch": "cache switch",
    "num_logits_to_keep": "kept scores",
    "logits_to_keep": "kept scores",
}
"""Names that Optimum and onnxruntime-genai give the inputs of decoders. `kept scores` limit the scores to the last
positions, and a `cache switch` tells a model with two branches if the cache has anything."""
TOKEN_NAMES: Final = tuple(name for name, kind in DECODER_INPUTS.items() if kind == "tokens")

_SOUND: Final = re.compile(r"audio|wave|wav$|speech|sound|pcm|signal|^input_values$")
_SPECTRUM: Final = re.compile(r"audio|feat|fbank|mel|spec|speech|signal")
_FRAMES: Final = re.compile(r"frame|time")
_STATE: Final = re.compile(r"^[hc](\d*|n|_?in)$|state|hidden|cache")
_INTEGERS: Final[Sequence[tuple[Kind, re.Pattern[str], range]]] = (
    ("tokens", re.compile(r"^(decoder_)?input_ids$"), range(9)),
    ("sample rate", re.compile(r"^(sr|fs|sampl(e|ing)_?rate)$"), range(9)),
    ("length", re.compile(r"(?<!max_)(?<!min_)len(gth)?s?$"), range(2)),
    ("token types", re.compile(r"token_type|segment_ids"), range(1, 9)),
    ("positions", re.compile(r"position_ids"), range(1, 9)),
)
"""Integers: kind, pattern of the name, numbers of dimensions."""
_GROWING: Final = re.compile(r"past|seq|len")
_OUTPUTS: Final[Mapping[Kind, re.Pattern[str]]] = {
    "keypoints": re.compile(r"key_?point|landmark|kpt|joint|pose|xyz"),
    "token vectors": re.compile(r"last_hidden_state|token_embedding"),
    "embedding": re.compile(r"embed|feature|descriptor|(^|[_.])(emb|feat|vec|vector)s?([_.]|\d|$)"),
}


class Value(Protocol):
    """An input or output as inspections and sessions describe it."""

    @property
    def name(self) -> str: ...

    @property
    def dims(self) -> Sequence[Dimension]: ...

    @property
    def is_float(self) -> bool: ...

    @property
    def is_integer(self) -> bool: ...


@dataclass(frozen=True)
class Role:
    """The role of an input or output, and its evidence."""

    kind: Kind
    evidence: str = ""
    axes: tuple[int, ...] = ()
    """Height and width of an image and its mask, the samples of a sound, or the sequence of a cache."""
    feeds: str = ""
    """The input that takes an output's state or cache with the next item."""


OTHER: Final = Role("other")


def input_roles(
    inputs: Iterable[Value], tables: Collection[str] = (), given: Mapping[str, Kind] | None = None
) -> dict[str, Role]:
    """Infer the role of each input by name; `given` ones come first. `tables` names the inputs that index a table.

    Raises:
        InputError: A given kind does not exist.
    """
    values = list(inputs)
    is_streamed = any(map(_is_state, values))
    roles = {value.name: _role(value, tables, is_streamed) for value in values} | _decoder_roles(values)
    for value in values:
        kind = (given or {}).get(value.name)
        if kind is not None:
            roles[value.name] = _given(value, kind)
    return roles


def output_roles(outputs: Sequence[Value], inputs: Sequence[Value], roles: Mapping[str, Role]) -> dict[str, Role]:
    """Infer the role of each output by name, given those of the inputs.

    The outputs that return a cache have its name. Those behind the first one that have the shapes of states return them
    in their order, if they are as many.
    """
    found = {value.name: output_role(value.name) for value in outputs}
    states = [value for value in inputs if roles[value.name].kind == "state"]
    returned = [value for value in outputs[1:] if any(may_be_same(value.dims, state.dims) for state in states)]
    if len(returned) == len(states):
        for value, state in zip(returned, states, strict=True):
            found[value.name] = Role("state", "its shape", feeds=state.name)
    for output, cache in cache_outputs(names_with("cache", roles), found).items():
        found[output] = Role("cache", "its name", feeds=cache)
    return found


def names_with(kind: Kind, roles: Mapping[str, Role]) -> list[str]:
    """The names of the inputs or outputs of a kind, in their order."""
    return [name for name, role in roles.items() if role.kind == kind]


def output_role(name: str) -> Role:
    """The role of an output that its name tells."""
    for kind, pattern in _OUTPUTS.items():
        if pattern.search(name.lower()):
            return Role(kind, "its name")
    return OTHER


def cache_outputs(caches: Iterable[str], names: Collection[str]) -> dict[str, str]:
    """Find the output that holds the new cache for each cache input: output -> input.

    Exporters name it `present.0.key` for `past_key_values.0.key`, or alike. Empty if one of them has none.
    """
    pairs = {}
    for past in caches:
        for part, replacement in _PRESENT:
            present = past.replace(part, replacement, 1)
            if present in names:
                pairs[present] = past
                break
        else:
            return {}
    return pairs


_PRESENT: Final = (("past_key_values", "present"), ("past", "present"), ("past_key_values", "present_key_values"))


def _given(value: Value, kind: Kind) -> Role:
    """The role that the user gives: the axes by the shape."""
    if kind not in get_args(Kind):
        raise InputError(
            f"no kind {kind!r} of inputs", where=f"roles: {value.name}", remedy=did_you_mean(kind, get_args(Kind))
        )
    axes: tuple[int, ...] = ()
    if kind == "cache":
        axes = tuple(_open_axes(value, after=0)[-1:]) or (len(value.dims) - 2,)
    elif kind in ("image", "mask") and len(value.dims) == 4:
        axes = image_axes(value.dims) or (2, 3)
    elif kind == "sound" and value.dims:
        axes = (max(range(len(value.dims)), key=lambda axis: _length(value.dims[axis], axis)),)
    return Role(kind, "as given", axes)


def _length(size: Dimension, axis: int) -> int:
    """A measure by which the longest axis is found: open ones are long, except the batch."""
    if isinstance(size, int):
        return size
    return KINDS.shortest_sound * (axis > 0)


def _role(value: Value, tables: Collection[str], is_streamed: bool) -> Role:
    """The role of an input that is not one of a decoder with a cache."""
    sound_axis = _sound_axis(value, is_streamed)
    images = image_axes(value.dims) or ()
    kind = _kind_by_name(value)
    role = OTHER
    if sound_axis is not None:
        role = Role("sound", "its name or length", (sound_axis,))
    elif kind == "mask":
        role = Role(kind, "its name", images)
    elif kind is not None:
        role = Role(kind, "its name")
    elif value.name in tables:
        role = Role("indices", "the table that it indexes")
    elif value.is_float and _is_spectrum(value):
        role = Role("spectrum", "its name or that of a dimension")
    elif images:
        role = Role("image", "its shape", images)
    return role


def _kind_by_name(value: Value) -> Kind | None:
    known = DECODER_INPUTS.get(value.name)
    if _is_state(value):
        return "state"
    if "mask" in value.name.lower():
        is_of_tokens = known == "token mask" and len(value.dims) == 2
        return "token mask" if is_of_tokens else "mask"
    if value.is_integer:
        for kind, pattern, ranks in _INTEGERS:
            if pattern.search(value.name.lower()) and len(value.dims) in ranks:
                return kind
    return None


def _is_state(value: Value) -> bool:
    """True for floats of at most one open dimension that are called a state."""
    open_axes = [size for size in value.dims if not isinstance(size, int)]
    has_shape = len(value.dims) >= 2 and len(open_axes) <= 1
    return value.is_float and has_shape and bool(_STATE.search(value.name.lower()))


def image_axes(dims: Sequence[Dimension]) -> tuple[int, int] | None:
    """The axes of height and width of a batch of images; None for other shapes.

    Without colours, one fixed side is the height of a line of text: keys and values of a cache of few heads or small
    ones have an open length too.
    """
    if len(dims) != 4 or any("frame" in str(size).lower() for size in dims):
        return None
    if dims[1] in CHANNELS:
        axes, channels = (2, 3), dims[1]
    elif dims[3] in CHANNELS:
        axes, channels = (1, 2), dims[3]
    else:
        return None
    height, width = (dims[axis] for axis in axes)
    is_line = isinstance(height, int) and height >= KINDS.lowest_line
    has_one_side = channels != KINDS.colours and isinstance(height, int) != isinstance(width, int)
    if has_one_side and not is_line:
        return None
    return axes


def _is_spectrum(value: Value) -> bool:
    """True for an input of frames of a sound, by its name or the name of an open dimension."""
    if any(_FRAMES.search(str(size).lower()) for size in value.dims[1:]):
        return True
    return len(value.dims) >= 3 and bool(_SPECTRUM.search(value.name.lower()))


def _sound_axis(value: Value, is_streamed: bool) -> int | None:
    """The axis of the samples: the only open or long one, apart from batch and channels."""
    if not value.is_float or len(value.dims) not in (1, 2, 3):
        return None
    may_be_piece = is_streamed and len(value.dims) == 2
    long_axes = {
        axis: size for axis, size in enumerate(value.dims) if isinstance(size, int) and size > KINDS.most_channels
    }
    if not long_axes:
        return _open_sound_axis(value, may_be_piece)
    longest = max(long_axes.values())
    if longest >= KINDS.shortest_sound or (may_be_piece and longest >= KINDS.shortest_piece):
        return _only(list(long_axes))
    return None


def _open_sound_axis(value: Value, may_be_piece: bool) -> int | None:
    # Nothing tells an open sound from other open floats but its name, or the state that a streamed model takes.
    is_piece = may_be_piece and not _is_state(value)
    if not is_piece and not _SOUND.search(value.name.lower()):
        return None
    if len(value.dims) == 1:
        return _only(_open_axes(value, after=-1))
    return _only(_open_axes(value, after=0))


def _open_axes(value: Value, after: int) -> list[int]:
    """The axes behind another one whose size is not fixed."""
    return [axis for axis in range(after + 1, len(value.dims)) if not isinstance(value.dims[axis], int)]


def _only(axes: Sequence[int]) -> int | None:
    """The axis, if there is exactly one."""
    if len(axes) != 1:
        return None
    return axes[0]


def _decoder_roles(values: Sequence[Value]) -> dict[str, Role]:
    """The roles in a decoder that takes the keys and values of earlier tokens; empty for any other model."""
    roles = {}
    for value in values:
        kind = DECODER_INPUTS.get(value.name)
        is_matrix = len(value.dims) == 2
        if kind is not None and (is_matrix or kind not in ("tokens", "token mask")):
            roles[value.name] = Role(kind, "its name")
    caches = {}
    for value in values:
        axis = _cache_axis(value)
        if axis is not None:
            caches[value.name] = Role("cache", "its name", (axis,))
    has_tokens = any(role.kind == "tokens" for role in roles.values())
    if not has_tokens or not caches:
        return {}
    return roles | caches


def _cache_axis(value: Value) -> int | None:
    """The axis of a cache that grows with the tokens: the open one after the batch, one with a telling name first."""
    is_own = value.name.startswith("past") and ".encoder." not in value.name and "cross" not in value.name
    rank = len(value.dims)
    if not is_own or rank not in CACHE_RANKS:
        return None
    open_axes = _open_axes(value, after=rank - max(CACHE_RANKS[0], rank - 1))
    telling = [axis for axis in open_axes if _GROWING.search(str(value.dims[axis]).lower())]
    return next(iter(telling or open_axes), None)


def may_be_same(dims: Sequence[Dimension], others: Sequence[Dimension]) -> bool:
    """True if two shapes may be the same; dimensions that are no numbers are open."""
    if len(dims) != len(others):
        return False
    known = [pair for pair in zip(dims, others, strict=True) if isinstance(pair[0], int) and isinstance(pair[1], int)]
    return all(size == other for size, other in known)
