"""Made-up sounds, sample rates, lengths and recurrent states, and the usual sizes of such inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from autoopt.data.dataset import Array, Feed
from autoopt.data.fit import InputSpec, fit, output_specs, specs_of
from autoopt.data.sources.open_sizes import OpenSizes
from autoopt.model.roles import Role, names_with, output_roles
from autoopt.model.session import make_session

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
HARMONICS: Final = 12
"""Overtones of a made-up voice; they reach 1 to 3 kHz."""
LONGEST_VOICE: Final = 317_011
"""Samples; no multiple of usual sizes, so that items differ."""

_PIECES: Final = re.compile(r"seq|len|frame|time")


def signal_sizes(
    specs: Sequence[InputSpec], roles: Mapping[str, Role], tables: Collection[str]
) -> dict[str, OpenSizes]:
    """Size the open dimensions of sounds, spectra, tokens and states, by input; others are left out.

    `tables` names the inputs that index into a table, as tokens do.
    """
    sizes_of = {}
    is_streamed = bool(names_with("state", roles))
    for spec in specs:
        role = roles[spec.name]
        usual = TOKENS if spec.name in tables else _usual_size(spec, role, is_streamed=is_streamed)
        if usual is None:
            continue
        axes = _inner_open_axes(spec)
        if role.kind == "sound":
            axes = [axis for axis in spec.open_axes if axis in role.axes]
        by_axis, text = dict.fromkeys(axes, usual.size), usual.text
        if is_streamed and _PIECES.search(str(spec.dims[:1])):
            by_axis[0], text = PIECES, f"{PIECES} times {text}"
        if by_axis:
            sizes_of[spec.name] = OpenSizes(by_axis, text)
    return sizes_of


def _usual_size(spec: InputSpec, role: Role, *, is_streamed: bool) -> UsualSize | None:
    """The usual size of an input's open dimensions; None for an input of another kind."""
    match role.kind:
        case "state" if _inner_open_axes(spec) == [1] and len(spec.dims) == 3:
            return ONE_SOUND
        case "sound":
            return PIECE if is_streamed else SOUND
        case "tokens" | "indices":
            return TOKENS
        case "spectrum":
            return FRAMES
    return None


def _inner_open_axes(spec: InputSpec) -> list[int]:
    """The open axes behind the first one, which is the batch."""
    return [axis for axis in spec.open_axes if axis > 0]


def signal_items(
    rng: np.random.Generator, spec: InputSpec, shape: tuple[int, ...], count: int, role: Role
) -> list[Array] | None:
    """Make the items of a sound, a sample rate or a recurrent state; None for any other input.

    Each item continues the sound of the one before. State is zero here; `carry_states` fills it in.
    """
    if spec.dtype is None:
        return None
    if role.kind == "sound":
        samples = sound(rng, count * int(np.prod(shape))).reshape(count, *shape)
        return list(samples.astype(spec.dtype))
    if role.kind == "sample rate":
        return [np.full(shape, SAMPLE_RATE, spec.dtype)] * count
    if role.kind == "state":
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


def lengths_of(feed: Mapping[str, Array], specs: Sequence[InputSpec], roles: Mapping[str, Role]) -> Feed:
    """Make the values of the inputs that tell how much of another input counts: all of it."""
    measured: dict[str, int] = {}
    for spec in specs:
        open_axes = _inner_open_axes(spec)
        if open_axes and spec.name in feed:
            measured[spec.name] = feed[spec.name].shape[open_axes[-1]]
    lengths: Feed = {}
    for length in names_with("length", roles):
        if measured and length in feed:
            closest = max(measured, key=lambda name: len(os.path.commonprefix([name, length])))  # noqa: RUF071  letters
            lengths[length] = np.full_like(feed[length], measured[closest])
    return lengths


def carry_states(
    model: str, arrays: dict[str, list[Array]], specs: Sequence[InputSpec], roles: Mapping[str, Role]
) -> None:
    """Replace recurrent states by the outputs of the model for the item before, in place.

    They stay zero where the model returns no such states or does not run.
    """
    states = [name for name in names_with("state", roles) if name in arrays]
    if not states:
        return
    try:
        session = make_session(model)
        inputs = specs_of(session)
        returned = output_roles(output_specs(session), specs, roles)
        outputs = {role.feeds: name for name, role in returned.items() if role.kind == "state"}
        if not outputs:
            return
        for number in range(len(arrays[states[0]]) - 1):
            feed = {name: items[number] for name, items in arrays.items()}
            results = session.run(list(outputs.values()), fit(feed, inputs))
            for name, result in zip(outputs, results, strict=True):
                arrays[name] = [*arrays[name][: number + 1], result, *arrays[name][number + 2 :]]
    except Exception:  # The next call that runs the model reports the runtime's own message.
        return
