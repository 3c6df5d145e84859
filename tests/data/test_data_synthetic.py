"""Items made from a model's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper

from autoopt.data.digest import GENERATED
from autoopt.data.opening import open_data
from autoopt.data.sources import synthetic
from autoopt.data.sources.synthetic import LONGEST_VOICE, sound
from autoopt.errors import InputError
from autoopt.model import io


def embedding_model():
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "wide"], ["y"]),
    ]
    ids = builders.tensor("ids", ["batch", "seq"], TensorProto.INT32)
    flag = builders.tensor("flag", [], TensorProto.BOOL)
    return builders.model(nodes, [ids, flag], [builders.tensor("y", ["batch", "seq", 2])], {"table": np.ones((5, 2))})


def test_items_suit_the_inputs_of_the_model(tmp_path):
    path = str(io.save(embedding_model(), tmp_path))
    load = {"type": "synthetic", "params": {"items": 50, "dimensions": {"seq": 7}}}
    data = open_data({"load_dataset": load}, model=path)
    assert len(data) == 50
    ids = np.stack(data.uneven["ids"])
    assert ids.shape == (50, 1, 7)
    assert ids.dtype == np.int32
    assert set(np.unique(ids)) == set(range(5))
    assert data.uneven["flag"][0].shape == ()
    again = open_data({"load_dataset": load}, model=path)
    np.testing.assert_array_equal(np.stack(again.uneven["ids"]), ids)
    other = {"type": "synthetic", "params": {"shapes": {"ids": [2, 3]}, "ranges": {"ids": [1, 2]}, "seed": 5}}
    limited = np.stack(open_data({"load_dataset": other}, model=path).uneven["ids"])
    assert limited.shape[1:] == (2, 3)
    assert set(np.unique(limited)) == {1, 2}


def inputs_of(tmp_path, *inputs, nodes=(), weights=None):
    nodes = list(nodes) or [helper.make_node("Identity", [inputs[0].name], ["y"])]
    return str(io.save(builders.model(nodes, list(inputs), [builders.tensor("y", None)], weights or {}), tmp_path))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (["batch", 3], (1, 3)),
        (["n", "seq_len"], (1, 32)),
        (["n", "image_height", "image_width"], (1, 64, 64)),
        (["n", "anything"], (1, 16)),
        ([None, None], (1, 16)),
        ([4, 5], (4, 5)),
        ([], ()),
    ],
)
def test_open_dimensions_get_sizes_by_their_names(tmp_path, shape, expected):
    path = inputs_of(tmp_path, builders.tensor("x", shape))
    data = synthetic.load(path, items=2)
    assert [item.shape for item in data.uneven["x"]] == [expected] * 2


def test_an_open_size_is_used_for_other_dimensions(tmp_path):
    path = inputs_of(tmp_path, builders.tensor("x", ["n", "seq", "other"]))
    assert synthetic.load(path, open_size=5).uneven["x"][0].shape == (1, 5, 5)
    assert synthetic.load(path, open_size=5, dimensions={"seq": 2}).uneven["x"][0].shape == (1, 2, 5)


@pytest.mark.parametrize(
    ("kind", "dtype", "values"),
    [
        (TensorProto.INT64, "int64", {0, 1}),
        (TensorProto.BOOL, "bool", {False, True}),
        (TensorProto.FLOAT16, "float16", None),
        (TensorProto.STRING, "object", None),
    ],
)
def test_values_have_the_element_type_of_the_input(tmp_path, kind, dtype, values):
    items = synthetic.load(inputs_of(tmp_path, builders.tensor("x", ["n", 200], kind))).uneven["x"]
    assert {str(item.dtype) for item in items} == {dtype}
    if values is not None:
        assert set(np.unique(items[0])) == values


@pytest.mark.parametrize(("kind", "limits"), [(TensorProto.INT32, [3, 5]), (TensorProto.FLOAT, [-2.0, -1.0])])
def test_ranges_are_kept(tmp_path, kind, limits):
    path = inputs_of(tmp_path, builders.tensor("x", ["n", 500], kind))
    values = synthetic.load(path, items=1, ranges={"x": limits}).uneven["x"][0]
    assert values.min() >= limits[0]
    assert values.max() <= limits[1]


def test_a_sequence_cannot_be_made_up(tmp_path):
    value = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    node = helper.make_node("SequenceLength", ["x"], ["y"])
    path = inputs_of(tmp_path, value, nodes=[node])
    with pytest.raises(InputError, match=r"input 'x': is a sequence, and autoopt feeds tensors only; export"):
        synthetic.load(path)


def test_weights_are_no_inputs(tmp_path):
    inputs = [builders.tensor("x", ["n", 2]), builders.tensor("w", [2, 2])]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    path = inputs_of(tmp_path, *inputs, nodes=[node], weights={"w": np.ones((2, 2), np.float32)})
    found = synthetic.read_inputs(path)
    assert [spec.name for spec in found.specs] == ["x"]
    assert found.table_lengths == {}


def test_the_shortest_table_limits_indices(tmp_path):
    nodes = [
        helper.make_node("Gather", ["long", "ids"], ["a"]),
        helper.make_node("Unsqueeze", ["ids", "axes"], ["wide"]),
        helper.make_node("Gather", ["short", "wide"], ["y"]),
    ]
    weights = {"long": np.ones((9, 2), np.float32), "short": np.ones((4, 2), np.float32), "axes": np.array([0])}
    path = inputs_of(tmp_path, builders.tensor("ids", ["n"], TensorProto.INT64), nodes=nodes, weights=weights)
    assert synthetic.read_inputs(path).table_lengths == {"ids": 4}


def test_inputs_that_have_one_meaning_get_it(tmp_path):
    names = ("attention_mask", "token_type_ids", "position_ids")
    inputs = [builders.tensor(name, ["batch", "seq"], TensorProto.INT64) for name in names]
    data = open_data({"load_dataset": "synthetic"}, model=inputs_of(tmp_path, *inputs))
    mask, types, positions = (data.uneven[name][0] for name in names)
    assert (mask == 1).all()
    assert (types == 0).all()
    np.testing.assert_array_equal(positions, np.arange(32)[np.newaxis])


@pytest.mark.parametrize(("shape", "axis"), [([1, 3, 64, 64], 3), ([1, 64, 64, 3], 1)])
def test_pictures_are_smooth(tmp_path, shape, axis):
    path = inputs_of(tmp_path, builders.tensor("x", shape))
    item = open_data({"load_dataset": "synthetic"}, model=path).uneven["x"][0]
    assert item.shape == tuple(shape)
    assert abs(item.mean()) < 0.1
    assert abs(item.std() - 1) < 0.1
    assert np.abs(np.diff(item, axis=axis)).mean() < 0.8  # 1.13 for independent values


def test_given_roles_come_before_those_of_names_and_shapes(tmp_path):
    path = str(io.save(builders.mlp(), tmp_path))
    (spec,) = synthetic.read_inputs(path).specs
    assert np.all(synthetic.load(path, items=1, roles={spec.name: "state"}).uneven[spec.name][0] == 0)
    with pytest.raises(InputError, match="no kind 'staet' of inputs"):
        synthetic.load(path, items=1, roles={spec.name: "staet"})


def test_given_ranges_come_before_meanings(tmp_path):
    path = inputs_of(tmp_path, builders.tensor("attention_mask", ["batch", "seq"], TensorProto.INT64))
    load = {"type": "synthetic", "params": {"ranges": {"attention_mask": [0, 1]}}}
    assert len(np.unique(np.stack(open_data({"load_dataset": load}, model=path).uneven["attention_mask"]))) == 2


def test_open_images_get_the_size_in_the_metadata_and_it_is_said(tmp_path):
    proto = builders.model(
        [helper.make_node("Relu", ["images"], ["y"])],
        [builders.tensor("images", ["batch", 3, "height", "width"])],
        [builders.tensor("y", None)],
        {},
    )
    helper.set_model_props(proto, {"imgsz": "[96, 128]"})
    path = str(io.save(proto, tmp_path))
    data = synthetic.load(path, items=2)
    assert data.uneven["images"][0].shape == (1, 3, 96, 128)
    assert synthetic.assumed_sizes(path, data.uneven) == ("images of 96x128 (imgsz in the model's metadata)",)
    resized = synthetic.load(path, items=2, image_size=[32, 40])
    assert resized.uneven["images"][0].shape == (1, 3, 32, 40)
    assert synthetic.assumed_sizes(path, resized.uneven) == ("images of 32x40",)


def test_large_items_are_few(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "MAX_ELEMENTS", 16 * 64 * 64)
    path = inputs_of(tmp_path, builders.tensor("x", ["n", 3, 64, 64]))
    assert len(synthetic.load(path, items=64)) == 5


def test_other_items_come_with_another_version(tmp_path):
    """Results on generated items are looked up by `GENERATED`: raise its version if this test fails, and adapt it."""
    inputs = [
        builders.tensor("image", ["n", 3, "height", "width"]),
        builders.tensor("ids", ["n", "seq"], TensorProto.INT64),
        builders.tensor("table", ["n", 7]),
        builders.tensor("flag", [], TensorProto.BOOL),
    ]
    data = open_data({"load_dataset": {"type": "synthetic"}}, model=inputs_of(tmp_path, *inputs))
    means = {}
    for name in ("ids", "table", "flag"):
        arrays = [feed[name] for feed, _ in data.feeds()]
        means[name] = round(float(np.mean(arrays)), 3)
    image = next(data.feeds())[0]["image"]
    assert GENERATED == "generated, version 1"
    assert means == {"ids": 0.479, "table": 0.175, "flag": 0.406}
    assert (image.shape, len(data)) == ((1, 3, 224, 224), 32)
    assert float(image[0, 0, 0, 0]) == pytest.approx(1.202, abs=1e-3)


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
