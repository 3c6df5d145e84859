"""Data sets of the Hugging Face library."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from autoopt.data.opening import open_data
from autoopt.errors import InputError

HUGGING_FACE = """
import json, sys
from pathlib import Path
import datasets, tokenizers
from PIL import Image
from autoopt.data import DataConfig
from autoopt.data.opening import open_data
folder = Path(sys.argv[1])
columns = {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "text": ["one", None, "two one"], "label": [1, 0, 1]}
ragged = {"ids": [[1], [2, 3], [4]], "part": [0.5, None, 1.0]}
rows = datasets.Dataset.from_dict(columns | ragged).cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
datasets.DatasetDict({"train": rows.select([0]), "test": rows.select([1, 2])}).save_to_disk(folder / "splits")
rows.with_format("numpy").save_to_disk(folder / "one")
for name in ("parquet", "json", "csv"):
    (folder / name).mkdir()
rows.to_parquet(folder / "parquet" / "train.parquet")
rows.to_json(folder / "json" / "train.jsonl")
rows.select_columns(["part", "text", "label"]).to_csv(folder / "csv" / "validation.csv")
rows.map(lambda row: {"label": -1}).save_to_disk(folder / "unlabelled")
kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])})
pictures = [Image.new("RGB", (3, 2), (255, 0, 0)), Image.new("L", (4, 2))]
datasets.Dataset.from_dict({"image": pictures, "label": [1, 0]}, features=kinds).save_to_disk(folder / "images")
coder = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))
coder.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
coder.save(str(folder / "tokenizer.json"))
tokenize = {"type": "tokenize", "params": {"tokenizer": "tokenizer.json", "length": 2}}
load = {"type": "huggingface", "params": {"data_name": "images", "images": {"size": [2, 2]}}}

def read(config):
    try:
        data = open_data(DataConfig.parse(config).resolved(folder))
    except Exception as error:
        return [type(error).__name__, str(error)]
    columns = {n: a.tolist() for n, a in data.columns.items()}
    columns |= {n: [a.tolist() for a in items] for n, items in data.uneven.items()}
    return [columns, None if data.labels is None else data.labels.tolist()]

asked = {name: {"data_name": name, "input_cols": ["x"]} for name in ("one", "splits", "parquet", "json", "unlabelled")}
asked["train"] = {"data_name": "splits", "split": "train", "input_cols": ["x"], "label_col": "label"}
asked["dev"] = {"data_name": "splits", "split": "dev"}
asked["nowhere"] = {"data_name": str(folder / "nowhere")}
asked["csv"] = {"data_name": "csv", "split": "validation", "input_cols": ["part", "text"]}
asked["ragged"] = {"data_name": "one", "input_cols": ["ids"], "limit": 2}
asked["tokens"] = {"data_name": "one", "input_cols": ["text"], "pre_process": tokenize, "limit": 1}
asked["images"] = {"load_dataset": load}
asked["raw"] = {"data_name": "images"}
print(json.dumps({name: read(config) for name, config in asked.items()}))
"""


def test_columns_of_a_table_become_inputs_and_labels():
    from autoopt.data.sources.tables import from_rows

    class Rows(dict):
        column_names = ("pixels", "text", "label")

    rows = Rows(pixels=[[1, 2], [3, 4]], text=["a", "b"], label=[1, 0])
    data = from_rows(rows, "toy", ["pixels"], None)
    assert data.columns["pixels"].tolist() == [[1, 2], [3, 4]]
    assert data.labels.tolist() == [1, 0]
    with pytest.raises(InputError, match="it has: pixels"):
        from_rows(rows, "toy", ["nothing"], None)


def test_a_missing_library_is_named():
    try:
        import datasets  # noqa: F401  # only whether it is there
    except ImportError:
        with pytest.raises(InputError, match=r"autoopt\[hf\]"):
            open_data({"data_name": "some/thing", "split": "test", "input_cols": ["x"]})


def test_saved_data_sets_are_read(tmp_path):
    pytest.importorskip("datasets")
    for needed in ("PIL", "tokenizers"):
        pytest.importorskip(needed)
    env = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", HUGGING_FACE, tmp_path], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    whole = [{"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]}, [1, 0, 1]]
    assert found["one"] == found["parquet"] == found["json"] == whole
    assert found["splits"] == [{"x": [[3.0, 4.0], [5.0, 6.0]]}, [0, 1]]
    assert found["train"] == [{"x": [[1.0, 2.0]]}, [1]]
    assert found["unlabelled"] == [whole[0], None]
    part, text = found["csv"][0]["part"], found["csv"][0]["text"]
    assert (part[0], np.isnan(part[1]), text) == (0.5, True, ["one", "", "two one"])
    assert found["ragged"] == [{"ids": [[[1]], [[2, 3]]]}, [1, 0]]
    assert found["tokens"][0]["input_ids"] == [[1, 0]]
    images, labels = found["images"]
    assert np.shape(images["image"]) == (2, 3, 2, 2)
    assert np.ravel(images["image"])[[0, 4, 8]].tolist() == [1.0, 0.0, 0.0]
    assert labels == [1, 0]
    for name, words in {"dev": "it has: train, test", "nowhere": "cannot load", "raw": "give size"}.items():
        kind, message = found[name]
        assert (kind, message.count("\n")) == ("InputError", 0)
        assert words in message
