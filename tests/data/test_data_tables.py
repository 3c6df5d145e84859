"""CSV and Parquet files."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from autoopt.data.opening import open_data
from autoopt.data.sources import tables
from autoopt.errors import InputError


def test_csv_rows_are_items(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("a,b,name,target\n1,2.5,x,0\n3,,y,1\n")
    with pytest.raises(InputError, match="name"):
        open_data(str(path))
    chosen = {"path": str(path), "load_dataset": {"type": "csv", "params": {"input_cols": ["a", "b"]}}}
    data = open_data(chosen)
    assert data.columns["input"].shape == (2, 2)
    assert np.isnan(data.columns["input"][1, 1])
    assert data.labels.tolist() == [0, 1]
    chosen["load_dataset"]["params"]["input_cols"] = {"p": ["a"], "q": ["name"]}
    assert open_data(chosen).columns["q"].tolist() == ["x", "y"]
    path.write_text("a,b\n1\n")
    with pytest.raises(InputError, match="line 2"):
        open_data(str(path))


def test_whole_numbers_that_fit_no_integer_are_floats(tmp_path):
    (tmp_path / "d.csv").write_text(f"a,b\n{10**30},2\n")
    assert open_data(str(tmp_path / "d.csv")).columns["input"].tolist() == [[1e30, 2.0]]


def test_parquet_rows_are_items(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({"a": [1.0, 2.0], "b": [3.0, 4.0], "label": [0, 1]}), tmp_path / "d.parquet")
    data = open_data(str(tmp_path / "d.parquet"))
    assert data.columns["input"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert data.labels.tolist() == [0, 1]


def test_columns_of_lists_that_differ_in_length_are_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = pyarrow.table({"a": [[1.0], [2.0, 3.0]], "b": [1.5, None], "c": ["x", None]})
    parquet.write_table(table, tmp_path / "d.parquet")
    read = {"path": str(tmp_path / "d.parquet"), "load_dataset": {"type": "parquet", "params": {"input_cols": ["b"]}}}
    with pytest.raises(InputError, match="'a' differ in length"):
        open_data(read)
    parquet.write_table(table.drop(["a"]), tmp_path / "d.parquet")
    read["load_dataset"]["params"]["input_cols"] = {"b": ["b"], "c": ["c"]}
    data = open_data(read)
    assert np.isnan(data.columns["b"][1, 0])
    assert data.columns["c"].tolist() == ["x", ""]


def load(tmp_path, text, name="d.csv", **params):
    (tmp_path / name).write_text(text)
    return tables.load_csv(str(tmp_path / name), **params)


def test_whole_numbers_numbers_and_texts_keep_their_types(tmp_path):
    data = load(tmp_path, "i,f,t\n1,1.5,a\n2,,b\n", input_cols={"i": ["i"], "f": ["f"], "t": ["t"]})
    kinds = [data.columns[name].dtype.kind for name in "ift"]
    assert kinds == ["i", "f", "O"]
    assert np.isnan(data.columns["f"][1, 0])


@pytest.mark.parametrize("name", ["label", "Labels", "TARGET", "class", "y"])
def test_usual_names_of_labels_are_recognized(tmp_path, name):
    data = load(tmp_path, f"x,{name}\n1,0\n2,1\n")
    assert data.labels.tolist() == [0, 1]
    assert data.columns["input"].tolist() == [[1], [2]]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_header_without_commas_tells_the_separator(tmp_path, separator):
    text = "\ufeffa,b,label\n1,2,0\n".replace(",", separator)
    data = load(tmp_path, text, "d.csv")
    assert data.columns["input"].tolist() == [[1, 2]]
    assert data.labels.tolist() == [0]


def test_tabs_separate_columns_of_tsv_files(tmp_path):
    assert load(tmp_path, "a\tb\n1\t2\n", "d.tsv").columns["input"].tolist() == [[1, 2]]
    assert load(tmp_path, "a;b\n1;2\n", delimiter=";").columns["input"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("text", "params", "words"),
    [
        ("a,b\n", {}, "no rows below its header"),
        ("", {}, "no rows"),
        ("label\n1\n2\n", {}, "has no columns besides the label"),
        ("a,b\n1,2\n3\n", {}, "line 3 has 1 fields separated by ',', the header 2"),
        ("a;b\n1;2\n3\n", {}, "line 3 has 1 fields separated by ';', the header 2"),
        ("a;b\n1,5;2\n-3,25;4\n", {}, "column 'a' holds numbers with a decimal comma, such as 1,5; write them"),
        ("a, b,a\n1,2,3\n", {}, "several columns named 'a'"),
        ("a,b\n1,2\n", {"label_col": "c"}, "no column 'c'"),
        ("age,b\n1,2\n", {"input_cols": ["agee"]}, "did you mean 'age'"),
        ("file,label\nno.png,cat\n", {}, "column 'file' names files, and no.png is not found"),
        ("a,file\n1,no.wav\n", {}, "column 'file' names files, and no.wav is not found"),
        ("a,b\n1,x\n", {}, "column 'b' holds text among numbers; name the label with --label b"),
        ("a,b,y\n1,x,0\n", {}, "column 'b' holds text among numbers; choose columns with --inputs"),
        ("a,b,y\n1,2,0\n3,n/a,1\n", {}, "column 'b' holds the text 'n/a' among numbers, in row 2; give numbers"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path, text, params, words):
    with pytest.raises(InputError, match=words):
        load(tmp_path, text, **params)


def test_columns_of_texts_alone_are_one_input(tmp_path):
    data = load(tmp_path, "a,b\nx,y\nz,w\n")
    assert data.columns["input"].tolist() == [["x", "y"], ["z", "w"]]


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
