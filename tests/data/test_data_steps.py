"""Built-in steps."""

from __future__ import annotations

import json

import builders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from steps_data import X, opened, step

from autoopt.data import DataConfig, steps
from autoopt.data.dataset import DataSet
from autoopt.data.opening import open_data, post_processor
from autoopt.data.reading import Reading
from autoopt.data.sources.tables import load_text
from autoopt.data.steps import tokenize
from autoopt.errors import InputError


def test_pre_processing_changes_only_its_columns(path):
    assert opened(path, pre_process=step("cast", dtype="int64", columns=["x"])).columns["x"].dtype == np.int64
    scaled = opened(path, pre_process=step("normalize", mean=[1, 2, 3], std=2.0, columns=["x"])).columns["x"]
    np.testing.assert_allclose(scaled, (X - [1, 2, 3]) / 2)
    assert opened(path, pre_process=step("reshape", shape=[1, 3])).columns["x"].shape == (20, 1, 3)


def test_post_processing_makes_predictions(path):
    outputs = [np.array([[0.0, 2.0], [3.0, 1.0]])]
    made = {
        n: post_processor(DataConfig.parse({"path": path, "post_process": n})) for n in ("argmax", "softmax", "sigmoid")
    }
    assert made["argmax"](outputs).tolist() == [1, 0]
    assert made["softmax"](outputs).sum(axis=1) == pytest.approx([1, 1])
    assert made["sigmoid"](outputs)[0, 0] == 0.5
    assert post_processor(DataConfig.parse(path)) is None


def data():
    return DataSet({"x": np.arange(6.0).reshape(2, 3), "t": np.array(2.0)}, np.array([0, 1]))


def test_steps_leave_values_for_all_items_alone():
    assert steps.cast(data(), "int32").columns["t"].dtype == np.float64
    assert steps.cast(data(), "int32", ["t"]).columns["t"].dtype == np.int32


def test_normalizing_with_lists_works_along_an_axis():
    pictures = DataSet({"x": np.ones((2, 3, 4, 4))})
    scaled = steps.normalize(pictures, mean=[1.0, 2.0, 3.0], std=0.5).columns["x"]
    assert scaled.dtype == np.float32
    assert scaled[0, :, 0, 0].tolist() == [0.0, -2.0, -4.0]
    last = steps.normalize(DataSet({"x": np.ones((2, 3))}), mean=[0.0, 1.0, 2.0], axis=1).columns["x"]
    assert last[0].tolist() == [1.0, 0.0, -1.0]


@given(st.integers(1, 30), st.integers(0, 5))
def test_shuffling_permutes_the_items_in_the_same_way_for_a_seed(count, seed):
    items = DataSet({"x": np.arange(count)})
    once, twice = steps.shuffle(items, seed), steps.shuffle(items, seed)
    assert sorted(once.columns["x"]) == list(range(count))
    assert once.columns["x"].tolist() == twice.columns["x"].tolist()


@given(st.lists(st.floats(-1000, 1000), min_size=2, max_size=6))
def test_probabilities_are_finite_sum_to_one_and_keep_the_order(scores):
    probabilities = steps.softmax([np.array([scores])])[0]
    assert np.isfinite(probabilities).all()
    assert probabilities.sum() == pytest.approx(1.0)
    assert probabilities[np.argmax(scores)] == probabilities.max()


def test_outputs_are_chosen_by_index():
    outputs = [np.zeros(2), np.array([0.2, 0.5, 0.9])]
    assert steps.output(outputs, 1) is outputs[1]
    assert steps.threshold(outputs, 1).tolist() == [0, 1, 1]
    assert steps.threshold(outputs, 1, at=0.6).tolist() == [0, 0, 1]
    assert steps.argmax([np.eye(3)], axis=0).tolist() == [0, 1, 2]


def test_lines_and_json_lines_are_items(tmp_path):
    (tmp_path / "t.txt").write_text("one\n\ntwo\n")
    assert open_data(str(tmp_path / "t.txt")).columns["text"].tolist() == ["one", "two"]
    rows = [{"text": "good", "label": "pos"}, {"text": "bad", "label": "neg"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert open_data(str(tmp_path / "t.jsonl")).labels.tolist() == [1, 0]


def test_a_tokenizer_file_turns_texts_into_ids(tmp_path, tokenizer):
    (tmp_path / "t.txt").write_text("one two\ntwo three four five\n")
    step = {"type": "tokenize", "params": {"tokenizer": tokenizer, "length": 3}}
    data = open_data({"path": str(tmp_path / "t.txt"), "pre_process": step})
    assert data.columns["input_ids"].tolist() == [[1, 2, 0], [2, 0, 0]]
    assert data.columns["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


@pytest.fixture
def tokenizer(tmp_path):
    """A tokenizer file that knows two words."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path / "tokenizer.json")


def test_labels_of_another_file_belong_to_the_lines(tmp_path):
    (tmp_path / "t.txt").write_text("one\n\ntwo\n")
    (tmp_path / "labels.txt").write_text("b\na\n")
    data = load_text(str(tmp_path / "t.txt"), labels=str(tmp_path / "labels.txt"))
    assert data.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([{"text": "a", "label": 0.5}, {"text": "b", "label": 2}], [0.5, 2.0]),
        ([{"text": "a", "label": 1}, {"text": "b"}], None),
        ([{"text": "a"}], None),
    ],
)
def test_json_lines_have_labels_if_all_of_them_do(tmp_path, rows, labels):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = load_text(str(tmp_path / "t.jsonl"))
    assert (None if data.labels is None else data.labels.tolist()) == labels


def test_json_lines_may_name_their_fields(tmp_path):
    (tmp_path / "t.jsonl").write_text(json.dumps({"review": "good", "stars": 5}))
    data = open_data({"path": str(tmp_path / "t.jsonl"), "input_cols": ["review"], "label_col": "stars"})
    assert (data.columns["text"].tolist(), data.labels.tolist()) == (["good"], [5])


def takes_tokens(tmp_path, name):
    """A model that takes four tokens."""
    ids = builders.tensor(name, ["n", 4], TensorProto.INT64)
    node = helper.make_node("Identity", [name], ["y"])
    return builders.write(builders.model([node], [ids], [builders.tensor("y", None)], {}), tmp_path)


def test_the_user_may_say_which_input_takes_the_tokens(tmp_path, tokenizer):
    (tmp_path / "t.txt").write_text("one two\n")
    step = {"type": "tokenize", "params": {"tokenizer": tokenizer}}
    config, path = {"path": str(tmp_path / "t.txt"), "pre_process": step}, takes_tokens(tmp_path, "words")
    lengths = [open_data(config, path, roles).columns["input_ids"].shape[1] for roles in (None, {"words": "tokens"})]
    assert lengths == [128, 4]


def test_the_tokenizer_beside_a_model_is_for_its_texts(tmp_path, tokenizer):
    path = takes_tokens(tmp_path, "input_ids")
    (tmp_path / "t.csv").write_text("id,text,label\n7,one two,ham\n9,two,spam\n")
    config = Reading().config(tmp_path / "t.csv", path)
    data = open_data(config, path)
    assert data.columns["input_ids"].tolist() == [[1, 2, 0, 0], [2, 0, 0, 0]]
    assert data.reading.startswith("ids are left out: 'id'; the option inputs chooses columns; tokenizer.json turns")
    assert Reading(length=2).config(tmp_path / "t.csv", path)["pre_process"]["params"]["length"] == 2


@pytest.mark.parametrize("content", ["no json", '{"other": 1}', "[1]", "3", "[" * 100_000])
def test_lines_that_hold_no_text_are_refused(tmp_path, content):
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"t\.jsonl: not readable as lines of text"):
        load_text(str(tmp_path / "t.jsonl"))


def test_a_file_that_is_no_tokenizer_and_a_missing_column_are_named(tmp_path, tokenizer):
    data = DataSet({"text": np.array(["one"], object)}, name="d")
    with pytest.raises(InputError, match="d: no column 'words' to tokenize"):
        tokenize(data, tokenizer, column="words")
    numbers = DataSet({"age": np.ones(3, np.float32)})
    assert tokenize(numbers, tokenizer) is numbers, "a table of numbers beside a model of texts"
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InputError, match=r"bad\.json: not a tokenizer file"):
        tokenize(data, str(tmp_path / "bad.json"))


def test_lines_end_only_at_line_breaks(tmp_path):
    texts = ["one\u2028two", "three\x0cfour\x85"]
    (tmp_path / "t.txt").write_text("\ufeff" + "\r\n".join(texts), encoding="utf-8", newline="")
    assert open_data(str(tmp_path / "t.txt")).columns["text"].tolist() == texts
    (tmp_path / "t.jsonl").write_text(
        "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts), encoding="utf-8"
    )
    assert open_data(str(tmp_path / "t.jsonl")).columns["text"].tolist() == texts
