"""The stored inputs of one inference."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import builders
import model_sets
import numpy as np
import pytest
from measure_helpers import QUICK
from onnx import helper

from autoopt.errors import InputError
from autoopt.json_codec import from_json, to_json
from autoopt.measure import stored_inputs
from autoopt.measure.inference import ModelRunner
from autoopt.measure.request import SET, Recording, RecordRequest
from autoopt.measure.stored_inputs import record, store_inputs
from autoopt.model import io
from autoopt.model.model_set import MODEL_SET, ModelSet, Part, Pipeline
from autoopt.model.session import make_session


def ask(tmp_path, model, **request):
    path = str(io.save(model, tmp_path / "model"))
    document = {"candidate": {"path": path}, "settings": QUICK, **request}
    reply = store_inputs({"request": document, "path": str(tmp_path / "inputs.npz")})
    return reply, np.load(tmp_path / "inputs.npz")


def test_they_are_the_first_batch_of_the_data(tmp_path):
    items = np.arange(80, dtype=np.float32).reshape(10, 8)
    np.savez(tmp_path / "data.npz", x=items, labels=np.zeros(10))
    data = {"path": str(tmp_path / "data.npz")}
    reply, arrays = ask(tmp_path, builders.mlp(), data=data, settings={**QUICK, "batch_size": 2})
    assert reply == {"batch_size": 2, "licence": ""}
    assert arrays.files == ["x"]
    assert np.array_equal(arrays["x"], items[:2])


def test_single_items_are_found_without_a_session(tmp_path, monkeypatch):
    items = np.arange(80, dtype=np.float32).reshape(10, 8)
    np.savez(tmp_path / "data.npz", x=items)
    data = {"path": str(tmp_path / "data.npz")}
    monkeypatch.setattr(ModelRunner, "open", None)
    reply, arrays = ask(tmp_path, builders.mlp(), data=data)
    assert reply["batch_size"] == 1
    assert np.array_equal(arrays["x"], items[:1])


def test_a_batch_of_the_data_is_tried_on_the_model(tmp_path):
    items = np.arange(80, dtype=np.float32).reshape(10, 8)
    np.savez(tmp_path / "data.npz", x=items)
    reply, arrays = ask(tmp_path, builders.mlp(), data={"path": str(tmp_path / "data.npz"), "batch_size": 5})
    assert (reply["batch_size"], len(arrays["x"])) == (5, 5)


def test_the_licence_of_the_model_is_read(tmp_path):
    model = builders.mlp()
    model.metadata_props.add(key="License", value="Apache-2.0")
    assert ask(tmp_path, model)[0]["licence"] == "Apache-2.0"


def test_data_that_cannot_be_read_are_the_users_error(tmp_path):
    with pytest.raises(InputError):
        ask(tmp_path, builders.mlp(), data={"path": str(tmp_path / "none.npz")})


ITEMS = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


def write_pair(folder: Path, **fields: Any) -> Path:
    """A set of two models, the second of which takes what the first gives; `fields` replace those of the set."""
    builders.write(builders.mlp(classes=8), folder / "first")
    builders.write(builders.mlp(seed=1), folder / "second")
    parts = {"first": Part("first/model.onnx"), "second": Part("second/model.onnx")}
    made = ModelSet(**{"parts": parts, "connections": {"first.x": "x", "second.x": "first.y"}, **fields})
    (folder / MODEL_SET).write_text(json.dumps(made.to_json()))
    return folder / MODEL_SET


def save(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "data.npz", **arrays)
    return str(folder / "data.npz")


def recorded(folder: Path, path: Path, data: str, **fields: Any) -> Recording:
    request = RecordRequest(str(path), str(folder), {"path": data}, **fields)
    return from_json(Recording, record(to_json(request)))


def stored(folder: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"{name}.npz") as arrays:
        return dict(arrays)


def test_each_part_gets_what_its_neighbour_gives(tmp_path: Path) -> None:
    recording = recorded(tmp_path, write_pair(tmp_path), save(tmp_path, x=ITEMS))
    assert recording.items == len(ITEMS)
    np.testing.assert_array_equal(stored(tmp_path, SET)["x"], ITEMS)
    np.testing.assert_array_equal(stored(tmp_path, "first")["x"], ITEMS)
    first = make_session(tmp_path / "first" / "model.onnx").run(None, {"x": ITEMS})[0]
    np.testing.assert_allclose(stored(tmp_path, "second")["x"], first, rtol=1e-5)


def test_an_interruption_of_one_item_does_not_change_what_takes_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three readings an item; the second model of the second item is interrupted.
    readings = (number + 1000.0 * (number > 4) for number in itertools.count())
    monkeypatch.setattr(stored_inputs.time, "perf_counter", lambda: next(readings))
    recording = recorded(tmp_path, write_pair(tmp_path), save(tmp_path, x=ITEMS))
    assert recording.seconds == {"first": 1, "second": 1}


def test_without_data_inputs_are_made_up_and_what_parts_give_each_other_is_not(tmp_path: Path) -> None:
    request = RecordRequest(str(write_pair(tmp_path)), str(tmp_path), generated={"items": 5})
    recording = from_json(Recording, record(to_json(request)))
    assert recording.items == 5
    x = stored(tmp_path, SET)["x"]
    np.testing.assert_array_equal(stored(tmp_path, "first")["x"], x)
    first = make_session(tmp_path / "first" / "model.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(stored(tmp_path, "second")["x"], first, rtol=1e-5)


def test_made_up_tokens_and_masks_fit_a_generation(tmp_path: Path) -> None:
    path = model_sets.write_description(tmp_path, model_sets.write_set(tmp_path / "models"))
    sizes = {"items": 4, "dimensions": {"text": 7}}
    request = RecordRequest(str(path), str(tmp_path), generated=sizes, new_tokens=3, start_token=7)
    recording = from_json(Recording, record(to_json(request)))
    assert recording.assumed == ("input_ids of 1x7", "attention_mask of 1x7")
    of_set = stored(tmp_path, SET)
    assert of_set["attention_mask"].tolist() == [[1] * 7] * 4
    assert of_set["input_ids"].max() > 1, "tokens index into the table of the encoder"
    assert of_set["decoder_input_ids"].tolist() == [[7]] * 4
    assert stored(tmp_path, "decoder_with_past")["input_ids"].shape == (4, 1)


def test_made_up_sizes_that_do_not_fit_each_other_ask_for_data(tmp_path: Path) -> None:
    for name, inputs, output in (("first", ["x"], "y"), ("second", ["y", "z"], "end")):
        nodes = [helper.make_node("Sum", inputs, [output])]
        values = [builders.tensor(each, ["batch", f"size_{each}"]) for each in inputs]
        builders.write(builders.model(nodes, values, [builders.tensor(output, ["batch", "n"])], {}), tmp_path / name)
    parts = {"first": Part("first/model.onnx"), "second": Part("second/model.onnx")}
    made = ModelSet(parts, {"first.x": "x", "second.y": "first.y", "second.z": "z"})
    (tmp_path / MODEL_SET).write_text(json.dumps(made.to_json()))
    sizes = {"items": 2, "dimensions": {"size_x": 3, "size_y": 5, "size_z": 5}}
    request = RecordRequest(str(tmp_path / MODEL_SET), str(tmp_path), generated=sizes)
    reason = r"do not run together on generated inputs: .*; give x, z with --data"
    with pytest.raises(InputError, match=reason) as caught:
        record(to_json(request))
    assert "\n" not in str(caught.value)


def test_labels_stay_with_their_items(tmp_path: Path) -> None:
    labels = np.array([3, 1, 2, 0, 2, 1])
    recorded(tmp_path, write_pair(tmp_path), save(tmp_path, x=ITEMS, labels=labels))
    assert stored(tmp_path, SET)["labels"].tolist() == labels.tolist()
    assert set(stored(tmp_path, "second")) == {"x"}


def test_parts_of_a_generation_are_recorded_in_its_middle(tmp_path: Path) -> None:
    path = model_sets.write_description(tmp_path, model_sets.write_set(tmp_path / "models"))
    data = str(model_sets.write_texts(tmp_path))
    recording = recorded(tmp_path, path, data, new_tokens=5, start_token=7)
    assert recording.calls == {"encoder": 1, "decoder": 1, "decoder_with_past": 5}
    of_set = stored(tmp_path, SET)
    assert of_set["decoder_input_ids"].tolist() == [[7]] * recording.items
    assert of_set["generated_ids"].shape == (recording.items, 5)
    past = stored(tmp_path, "decoder_with_past")["past_key_values.0.key"]
    assert past.shape[2] == 3  # the prompt and two of five tokens


def test_a_prompt_of_the_data_replaces_the_start_token(tmp_path: Path) -> None:
    path = model_sets.write_description(tmp_path, model_sets.write_set(tmp_path / "models"))
    prompts = np.arange(24).reshape(12, 2)
    data = str(model_sets.write_texts(tmp_path, decoder_input_ids=prompts))
    recorded(tmp_path, path, data, new_tokens=2)
    np.testing.assert_array_equal(stored(tmp_path, SET)["decoder_input_ids"], prompts)


SCRIPT = """
import numpy as np

def both(models, inputs):
    features = models["first"]({"x": inputs["x"]})["y"]
    if inputs["x"][0, 0] > LIMIT:
        features = np.concatenate([features, features])
    return {"scores": models["second"]({"x": features})["y"]}

def only_first(models, inputs):
    return {"y": models["first"]({"x": inputs["x"]})["y"]}

def broken(models, inputs):
    return models["third"](inputs)

def number(models, inputs):
    return 3
"""


def write_pipeline(folder: Path, function: str, limit: float = 100.0) -> tuple[Path, str]:
    (folder / "both.py").write_text(SCRIPT.replace("LIMIT", str(limit)))
    path = write_pair(folder, connections={}, pipeline=Pipeline(function, {"x": [None, 8]}))
    return path, str(folder / "both.py")


def test_a_pipeline_gives_the_shapes_of_its_outputs(tmp_path: Path) -> None:
    path, script = write_pipeline(tmp_path, "both")
    recording = recorded(tmp_path, path, save(tmp_path, x=ITEMS), user_script=script)
    assert recording.outputs == {"scores": (1, 4)}
    assert stored(tmp_path, "second")["x"].shape == (6, 8)


def test_items_of_a_rarer_shape_are_left_out_of_all_files(tmp_path: Path) -> None:
    items = ITEMS.copy()
    items[:, 0] = [0, 9, 0, 0, 9, 0]
    path, script = write_pipeline(tmp_path, "both", limit=5.0)
    recording = recorded(tmp_path, path, save(tmp_path, x=items, labels=np.arange(6)), user_script=script)
    assert recording.items == 4
    assert stored(tmp_path, SET)["labels"].tolist() == [0, 2, 3, 5]
    np.testing.assert_array_equal(stored(tmp_path, "first")["x"], items[[0, 2, 3, 5]])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("only_first", "'second' is never run for these data"),
        ("broken", r"both\.py:\d+: broken raised KeyError: 'third'"),
        ("number", "number returns int, not a dict of arrays; return"),
    ],
)
def test_a_pipeline_that_does_not_run_all_models_is_named(tmp_path: Path, function: str, reason: str) -> None:
    path, script = write_pipeline(tmp_path, function)
    with pytest.raises(InputError, match=reason):
        recorded(tmp_path, path, save(tmp_path, x=ITEMS), user_script=script)


def test_recording_ends_where_the_files_would_get_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_inputs, "MOST_BYTES", 2 * ITEMS[0].nbytes)
    assert recorded(tmp_path, write_pair(tmp_path), save(tmp_path, x=ITEMS)).items == 3


def test_data_without_an_input_of_the_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data for the model's input 'x'; the data has: a, b"):
        recorded(tmp_path, write_pair(tmp_path), save(tmp_path, a=ITEMS, b=ITEMS))
