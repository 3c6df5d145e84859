"""Made-up sounds, spectra, lengths and recurrent states, recognized by the names and shapes of inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from autoopt.data.dataset import Array, Feed
from autoopt.data.fit import InputSpec, fit, has_shape, specs_of
from autoopt.data.sources.open_sizes import OpenSizes
from autoopt.model.session import make_session

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

SAMPLE_RATE: Final = 16_000


class UsualSize(NamedTuple):
    """The usual size of an open dimension, in words too."""

    size: int
    text: str


SOUND: Final = UsualSize(2 * SAMPLE_RATE, "2 s of sound at 16 kHz")
PIECE: Final = UsualSize(512, "32 ms of sound at 16 kHz")
"""For models with recurrent state, which take a sound piece by piece."""
FRAMES: Final = UsualSize(200, "2 s of sound in frames of 10 ms")
TOKENS: Final = UsualSize(32, "32 tokens")
ONE_SOUND: Final = UsualSize(1, "of one sound")
"""Batch axis of a recurrent state, whose first axis is the layers."""
PIECES: Final = 32
"""Pieces of sound in one inference of a model that takes several."""
SHORTEST_SOUND: Final = 2000
"""Smallest fixed size that counts as the length of a sound."""
SHORTEST_PIECE: Final = 256
"""The same for a model with recurrent state, which takes 16 ms of sound or more at a time."""
MOST_CHANNELS: Final = 2
"""A longer fixed axis is no axis of channels: sounds are mono or stereo."""
HARMONICS: Final = 12
"""Overtones of a made-up voice; they reach 1 to 3 kHz."""
LONGEST_VOICE: Final = 317_011
"""Samples; no multiple of usual sizes, so that items differ."""

_SOUND: Final = re.compile(r"audio|wave|wav$|speech|sound|pcm|signal|^input_values$")
_SPECTRUM: Final = re.compile(r"audio|feat|fbank|mel|spec|speech|signal")
_FRAMES: Final = re.compile(r"frame|time")
_PIECES: Final = re.compile(r"seq|len|frame|time")
_LENGTH: Final = re.compile(r"(?<!max_)(?<!min_)len(gth)?s?$")
_RATE: Final = re.compile(r"^(sr|fs|sampl(e|ing)_?rate)$")
_STATE: Final = re.compile(r"^[hc](\d*|n|_?in)$|state|hidden|cache")


def signal_sizes(specs: Sequence[InputSpec], tables: Collection[str]) -> dict[str, OpenSizes]:
    """Size the open dimensions of sounds, spectra, tokens and states by the input's name; other inputs are left out.

    `tables` names the inputs that index into a table, as tokens do.
    """
    sizes_of = {}
    sounds, is_streamed = sound_axes(specs), bool(state_names(specs))
    for spec in specs:
        usual = _usual_size(spec, is_sound=spec.name in sounds, is_token=spec.name in tables, is_streamed=is_streamed)
        if usual is None:
            continue
        axes = _inner_open_axes(spec)
        if usual in (SOUND, PIECE):
            axes = [axis for axis in spec.open_axes if axis == sounds[spec.name]]
        by_axis, text = dict.fromkeys(axes, usual.size), usual.text
        if is_streamed and _PIECES.search(str(spec.dims[:1])):
            by_axis[0], text = PIECES, f"{PIECES} times {text}"
        if by_axis:
            sizes_of[spec.name] = OpenSizes(by_axis, text)
    return sizes_of


def _usual_size(spec: InputSpec, *, is_sound: bool, is_token: bool, is_streamed: bool) -> UsualSize | None:
    """The usual size of an input's open dimensions; None for an input of another kind."""
    if _inner_open_axes(spec) == [1] and len(spec.dims) == 3 and state_names([spec]):
        return ONE_SOUND
    if is_sound:
        return PIECE if is_streamed else SOUND
    if is_token:
        return TOKENS
    if spec.is_float and _is_spectrum(spec):
        return FRAMES
    return None


def _inner_open_axes(spec: InputSpec) -> list[int]:
    """The open axes behind the first one, which is the batch."""
    return [axis for axis in spec.open_axes if axis > 0]


def sound_axes(specs: Sequence[InputSpec]) -> dict[str, int]:
    """Find the inputs that take a sound, and the axis of its samples."""
    is_streamed = bool(state_names(specs))
    axes = {}
    for spec in specs:
        axis = _sound_axis(spec, is_streamed)
        if axis is not None:
            axes[spec.name] = axis
    return axes


def _sound_axis(spec: InputSpec, is_streamed: bool) -> int | None:
    """The axis of the samples: the only open or long one, apart from batch and channels."""
    if not spec.is_float or len(spec.dims) not in (1, 2, 3):
        return None
    may_be_piece = is_streamed and len(spec.dims) == 2
    long_axes = {axis: size for axis, size in enumerate(spec.dims) if isinstance(size, int) and size > MOST_CHANNELS}
    if not long_axes:
        return _open_sound_axis(spec, may_be_piece)
    shortest = SHORTEST_PIECE if may_be_piece else SHORTEST_SOUND
    if max(long_axes.values()) < shortest:
        return None
    return _only_axis(long_axes)


def _open_sound_axis(spec: InputSpec, may_be_piece: bool) -> int | None:
    # Nothing tells an open sound from other open floats but its name, or the state that a streamed model takes.
    is_piece = may_be_piece and not state_names([spec])
    if not is_piece and not _SOUND.search(spec.name.lower()):
        return None
    if len(spec.dims) == 1:
        return _only_axis(spec.open_axes)
    return _only_axis(_inner_open_axes(spec))


def _only_axis(axes: Iterable[int]) -> int | None:
    """The axis, if there is exactly one."""
    candidates = list(axes)
    return candidates[0] if len(candidates) == 1 else None


def _is_spectrum(spec: InputSpec) -> bool:
    """True for an input of frames of a sound, by its name or the name of an open dimension."""
    if any(_FRAMES.search(str(size).lower()) for size in spec.dims[1:]):
        return True
    return len(spec.dims) >= 3 and bool(_SPECTRUM.search(spec.name.lower()))


def state_names(specs: Sequence[InputSpec]) -> list[str]:
    """Names of the inputs that take recurrent state: floats of at most one open dimension, by their names."""
    names = []
    for spec in specs:
        has_shape_of_state = len(spec.dims) >= 2 and len(spec.open_axes) <= 1
        if spec.is_float and has_shape_of_state and _STATE.search(spec.name.lower()):
            names.append(spec.name)
    return names


def signal_items(
    rng: np.random.Generator, spec: InputSpec, shape: tuple[int, ...], count: int, specs: Sequence[InputSpec]
) -> list[Array] | None:
    """Make the items of a sound, a sample rate or a recurrent state; None for any other input.

    Each item continues the sound of the one before. State is zero here; `carry_states` fills it in.
    """
    if spec.dtype is None:
        return None
    if spec.name in sound_axes(specs):
        samples = sound(rng, count * int(np.prod(shape))).reshape(count, *shape)
        return list(samples.astype(spec.dtype))
    if is_rate(spec):
        return [np.full(shape, SAMPLE_RATE, spec.dtype)] * count
    if spec.name in state_names(specs):
        return [np.zeros(shape, spec.dtype)] * count
    return None


def sound(rng: np.random.Generator, samples: int) -> Array:
    """A voice of changing pitch in syllables between pauses, and weak noise: within -1 and 1, at 16 kHz.

    Longer ones repeat it.
    """
    time = np.arange(min(samples, LONGEST_VOICE)) / SAMPLE_RATE
    pitch = rng.uniform(90, 220) * (1 + 0.2 * np.sin(2 * np.pi * 0.7 * time) + 0.1 * np.sin(2 * np.pi * 2.3 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    voice = np.zeros(len(time))
    for harmonic in range(1, HARMONICS + 1):
        voice += rng.uniform(0.2, 1) / harmonic * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 2.5 * time), 0, None) * (np.sin(2 * np.pi * 0.4 * time) > -0.7)
    return np.resize(0.3 * voice * syllables + 0.003 * rng.standard_normal(len(time)), samples)


def lengths_of(feed: Mapping[str, Array], specs: Sequence[InputSpec]) -> Feed:
    """Make the values of the inputs that tell how much of another input counts: all of it."""
    measured: dict[str, int] = {}
    for spec in specs:
        open_axes = _inner_open_axes(spec)
        if open_axes and spec.name in feed:
            measured[spec.name] = feed[spec.name].shape[open_axes[-1]]
    lengths: Feed = {}
    for spec in specs:
        if measured and spec.name in feed and is_length(spec):
            closest = max(measured, key=lambda name: len(os.path.commonprefix([name, spec.name])))  # noqa: RUF071  letters
            lengths[spec.name] = np.full_like(feed[spec.name], measured[closest])
    return lengths


def is_rate(spec: InputSpec) -> bool:
    """True for an input that takes the sample rate."""
    return spec.is_integer and bool(_RATE.search(spec.name.lower()))


def is_length(spec: InputSpec) -> bool:
    """True for an input that takes the length of another one, for each item."""
    return spec.is_integer and len(spec.dims) < 2 and bool(_LENGTH.search(spec.name.lower()))


def carry_states(model: str, arrays: dict[str, list[Array]], specs: Sequence[InputSpec]) -> None:
    """Replace recurrent states by the outputs of the model for the item before, in place.

    They stay zero where the model returns no such states or does not run.
    """
    states = [name for name in state_names(specs) if name in arrays]
    if not states:
        return
    try:
        session = make_session(model)
        inputs = specs_of(session)
        outputs = _state_outputs(session, {name: arrays[name][0] for name in states})
        for number in range(len(arrays[states[0]]) - 1 if outputs else 0):
            feed = {name: items[number] for name, items in arrays.items()}
            results = session.run(outputs, fit(feed, inputs))
            for name, result in zip(states, results, strict=True):
                arrays[name] = [*arrays[name][: number + 1], result, *arrays[name][number + 2 :]]
    except Exception:  # The next call that runs the model reports the runtime's own message.
        return


def _state_outputs(session: InferenceSession, states: Mapping[str, Array]) -> list[str]:
    """The outputs that return these states, in their order; none if their shapes do not tell which."""
    shapes = [state.shape for state in states.values()]
    returned = session.get_outputs()[1:]
    outputs = [output.name for output in returned if any(has_shape(shape, output.shape) for shape in shapes)]
    return outputs if len(outputs) == len(states) else []
