"""Made-up sounds, spectra, lengths and recurrent states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper

from autoopt.data.sources import synthetic
from autoopt.data.sources.synthetic import LONGEST_VOICE, sound
from autoopt.model import io


def saved(folder: Path, inputs: list[Any], nodes: Any = (), outputs: Any = (), **weights: Any) -> str:
    nodes = list(nodes) or [helper.make_node("Identity", [inputs[0].name], ["y"])]
    outputs = list(outputs) or [builders.tensor("y", None)]
    return str(io.save(builders.model(nodes, inputs, outputs, weights), folder))


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("waveforms", ["batch", "N"], (1, 32000)),
        ("audio", ["samples"], (32000,)),
        ("x", ["batch", 144160], (1, 144160)),
        ("x", ["batch", 43844, 1], (1, 43844, 1)),
    ],
)
def test_sounds_are_two_seconds_of_a_voice_unless_the_model_says_more(
    tmp_path: Path, name: str, shape: Any, expected: tuple[int, ...]
) -> None:
    items = synthetic.load(saved(tmp_path, [builders.tensor(name, shape)]), items=2).uneven[name]
    assert [item.shape for item in items] == [expected] * 2
    assert 0.02 < np.std(items) < 0.5
    assert np.abs(np.diff(np.ravel(items[0]))).mean() < np.std(items) / 4


def test_a_voice_has_pauses_and_stays_within_the_range_of_sounds() -> None:
    samples = sound(np.random.default_rng(0), 160_000)
    assert np.abs(samples).max() < 1
    loudness = samples.reshape(-1, 1600).std(axis=1)
    assert (loudness < 0.005).any()
    assert (loudness > 0.05).any()


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("input", ["batch", 3, "frames", 160], (1, 3, 200, 160)),
        ("audio_signal", ["batch", 80, "T"], (1, 80, 200)),
        ("hidden", ["batch", "seq", 64], (1, 32, 64)),
    ],
)
def test_spectra_have_the_frames_of_two_seconds(
    tmp_path: Path, name: str, shape: Any, expected: tuple[int, ...]
) -> None:
    (item,) = synthetic.load(saved(tmp_path, [builders.tensor(name, shape)]), items=1).uneven[name]
    assert item.shape == expected


def test_a_length_is_that_of_the_input_that_it_belongs_to(tmp_path: Path) -> None:
    inputs = [
        builders.tensor("waveforms", ["batch", "N"]),
        builders.tensor("words", ["batch", "seq"], TensorProto.INT64),
        builders.tensor("waveforms_lens", ["batch"], TensorProto.INT64),
        builders.tensor("words_length", ["batch"], TensorProto.INT64),
        builders.tensor("max_length", ["one"], TensorProto.INT64),
    ]
    path = saved(tmp_path, inputs)
    data = synthetic.load(path, items=1)
    assert data.uneven["waveforms_lens"][0].tolist() == [32000]
    assert data.uneven["words_length"][0].tolist() == [32]
    assert data.uneven["max_length"][0] < 2
    given = synthetic.load(path, items=1, ranges={"waveforms_lens": [7, 7]})
    assert given.uneven["waveforms_lens"][0].tolist() == [7]


@pytest.mark.parametrize("batch", ["batch", None])
def test_a_model_with_state_gets_pieces_of_a_sound_and_its_own_state(tmp_path: Path, batch: str | None) -> None:
    inputs = [
        builders.tensor("input", [batch, "sequence"]),
        builders.tensor("state", [1, batch, 1]),
        builders.tensor("sr", [], TensorProto.INT64),
    ]
    nodes = [
        helper.make_node("ReduceMax", ["input"], ["loudest"]),
        helper.make_node("Add", ["state", "one"], ["stateN"]),
    ]
    outputs = [builders.tensor("loudest", None), builders.tensor("stateN", [1, batch, 1])]
    path = saved(tmp_path, inputs, nodes, outputs, one=np.float32(1))
    data = synthetic.load(path, items=4)
    assert data.uneven["input"][0].shape == (1, 512)
    assert [float(state.item()) for state in data.uneven["state"]] == [0, 1, 2, 3]
    assert data.uneven["sr"][0] == 16000


def test_state_that_the_model_does_not_return_is_zero(tmp_path: Path) -> None:
    path = saved(tmp_path, [builders.tensor("x", ["n", 3]), builders.tensor("h0", [4, 1, 96])])
    assert not np.any(synthetic.load(path, items=2).uneven["h0"])


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.FLOAT])
def test_numbers_that_are_compared_with_many_constants_are_below_their_number(tmp_path: Path, kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["codes"], ["whole"], to=TensorProto.INT32),
        helper.make_node("Unsqueeze", ["whole", "axis"], ["column"]),
        helper.make_node("Equal", ["column", "all"], ["y"]),
    ]
    outputs = [builders.tensor("y", None, TensorProto.BOOL)]
    numbers = {"all": np.arange(9, dtype=np.int32)[None], "axis": np.array([2])}
    path = saved(tmp_path, [builders.tensor("codes", ["n", 50], kind)], nodes, outputs, **numbers)
    codes = np.stack(synthetic.load(path, items=4).uneven["codes"])
    assert set(np.unique(codes)) == set(range(9))


def test_a_long_sound_repeats_a_shorter_one() -> None:
    rng = np.random.default_rng(0)
    samples = sound(rng, 2 * LONGEST_VOICE)
    np.testing.assert_array_equal(samples[:LONGEST_VOICE], samples[LONGEST_VOICE:])
    assert sound(rng, 0).size == 0
