"""Lines of text and tokenizers."""

from __future__ import annotations

import json

import pytest

from autoopt.data.opening import open_data


def test_lines_and_json_lines_are_items(tmp_path):
    (tmp_path / "t.txt").write_text("one\n\ntwo\n")
    assert open_data(str(tmp_path / "t.txt")).columns["text"].tolist() == ["one", "two"]
    rows = [{"text": "good", "label": "pos"}, {"text": "bad", "label": "neg"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert open_data(str(tmp_path / "t.jsonl")).labels.tolist() == [1, 0]


def test_a_tokenizer_file_turns_texts_into_ids(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "t.txt").write_text("one two\ntwo three four five\n")
    params = {"tokenizer": str(tmp_path / "tokenizer.json"), "length": 3}
    data = open_data({"path": str(tmp_path / "t.txt"), "load_dataset": {"type": "text", "params": params}})
    assert data.columns["input_ids"].tolist() == [[1, 2, 0], [2, 0, 0]]
    assert data.columns["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
