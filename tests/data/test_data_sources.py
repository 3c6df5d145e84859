"""Every loader on real files, and what it says of bad ones."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoopt.data import open_data
from autoopt.data.components import BUILT_IN, component
from autoopt.data.config import DataConfig
from autoopt.data.digest import digest
from autoopt.data.worker import describe
from autoopt.errors import InputError
from autoopt.model import io

X = np.arange(24, dtype=np.float32).reshape(6, 4)
Y = np.array([0, 1, 0, 1, 2, 2])


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in BUILT_IN.items() for n in names])
def test_every_built_in_component_is_there(kind, name):
    assert callable(component(kind, name))


def test_npz_with_labels_and_a_value_for_all(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, threshold=np.float32(0.5), labels=Y)
    data = open_data(str(tmp_path / "d.npz"))
    batches = list(data.feeds(4))
    assert [len(labels) for _, labels in batches] == [4, 2]
    assert batches[0][0]["threshold"].shape == ()
    np.testing.assert_array_equal(np.concatenate([f["x"] for f, _ in batches]), X)
    assert len(list(data.feeds(2, limit=3))) == 2


def test_npy_is_the_only_input(tmp_path):
    np.save(tmp_path / "d.npy", X)
    np.save(tmp_path / "y.npy", Y)
    load = {"type": "npy", "params": {"labels": str(tmp_path / "y.npy")}}
    data = open_data({"path": str(tmp_path / "d.npy"), "load_dataset": load})
    assert list(data.columns) == ["d"]
    np.testing.assert_array_equal(data.labels, Y)


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv", "parquet", "xyz"])
def test_rubbish_is_refused_in_one_line(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"bad.{suffix}"
    path.write_bytes(b"\x93 rubbish")
    with pytest.raises(InputError) as caught:
        open_data(str(path))
    assert "\n" not in str(caught.value)


def test_pickles_are_never_opened(tmp_path):
    trap = tmp_path / "trap"

    class Trap:
        def __reduce__(self):
            return (open, (str(trap), "w"))

    np.save(tmp_path / "d.npy", np.array([Trap()], object), allow_pickle=True)
    np.savez(tmp_path / "d.npz", x=np.array([Trap()], object))
    (tmp_path / "plain.npy").write_bytes(pickle.dumps(Trap()))
    trap.unlink(missing_ok=True)
    for name in ("d.npy", "d.npz", "plain.npy"):
        with pytest.raises(InputError):
            open_data(str(tmp_path / name))
    assert not trap.exists()


def test_onnx_test_data_in_numeric_order(tmp_path):
    for number in (10, 2):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        for kind, value in (("input_0", [number, 1.0]), ("output_0", [float(number)])):
            tensor = numpy_helper.from_array(np.array([value], np.float32), "x" if kind == "input_0" else "y")
            (folder / f"{kind}.pb").write_bytes(tensor.SerializeToString())
    data = open_data(str(tmp_path))
    assert [float(feed["x"][0, 0]) for feed, _ in data.feeds()] == [2.0, 10.0]
    labelled = open_data(
        {"path": str(tmp_path), "load_dataset": {"type": "onnx_test_data", "params": {"labels": True}}}
    )
    assert labelled.labels.ravel().tolist() == [2.0, 10.0]


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


def test_parquet_is_a_table_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({"a": [1.0, 2.0], "b": [3.0, 4.0], "label": [0, 1]}), tmp_path / "d.parquet")
    data = open_data(str(tmp_path / "d.parquet"))
    assert data.columns["input"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert data.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"size": 16}, r"size must be \[height, width\], not 16"),
        ({"mean": [0.5, 0.5]}, "mean has 2 numbers for 3 channels"),
        ({"std": [0.5, 0.5], "mode": "L"}, "std has 2 numbers for 1 channels"),
    ],
)
def test_image_parameters_that_do_not_fit_are_named(tmp_path, params, words):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=words):
        open_data({"path": str(tmp_path), "load_dataset": {"type": "images", "params": params}})


def test_images_by_folder_or_by_a_file_of_labels(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("cat/1.png", (255, 0, 0)), ("dog/2.png", (0, 0, 255))):
        (tmp_path / "set" / name).parent.mkdir(parents=True)
        image.new("RGB", (4, 6), colour).save(tmp_path / "set" / name)
    data = open_data(str(tmp_path / "set"))
    assert data.columns["image"].shape == (2, 3, 6, 4)
    assert data.columns["image"][0, :, 0, 0].tolist() == [1.0, 0.0, 0.0]
    assert data.labels.tolist() == [0, 1]
    (tmp_path / "labels.csv").write_text("cat/1.png,7\ndog/2.png,3\n")
    params = {"labels": str(tmp_path / "labels.csv"), "size": [2, 2], "layout": "NHWC", "mean": [0.5, 0.5, 0.5]}
    other = open_data({"path": str(tmp_path / "set"), "load_dataset": {"type": "images", "params": params}})
    assert other.labels.tolist() == [7, 3]
    assert other.columns["image"].shape == (2, 2, 2, 3)
    assert other.columns["image"][0, 0, 0].tolist() == [0.5, -0.5, -0.5]


def test_text_lines_and_json_lines(tmp_path):
    (tmp_path / "t.txt").write_text("one\n\ntwo\n")
    assert open_data(str(tmp_path / "t.txt")).columns["text"].tolist() == ["one", "two"]
    rows = [{"text": "good", "label": "pos"}, {"text": "bad", "label": "neg"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert open_data(str(tmp_path / "t.jsonl")).labels.tolist() == [1, 0]


def test_a_tokenizer_file_makes_ids(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "t.txt").write_text("one two\ntwo three four five\n")
    params = {"tokenizer": str(tmp_path / "tokenizer.json"), "length": 3}
    data = open_data({"path": str(tmp_path / "t.txt"), "load_dataset": {"type": "text", "params": params}})
    assert data.columns["input_ids"].tolist() == [[1, 2, 0], [2, 0, 0]]
    assert data.columns["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


def test_rows_of_a_hugging_face_table():
    from autoopt.data.sources.huggingface import from_rows

    class Rows(dict):
        column_names = ("pixels", "text", "label")

    rows = Rows(pixels=[[1, 2], [3, 4]], text=["a", "b"], label=[1, 0])
    data = from_rows(rows, "toy", ["pixels"], None)
    assert data.columns["pixels"].tolist() == [[1, 2], [3, 4]]
    assert data.labels.tolist() == [1, 0]
    with pytest.raises(InputError, match="it has: pixels"):
        from_rows(rows, "toy", ["nothing"], None)


def test_the_hugging_face_shorthand_says_what_is_missing():
    try:
        import datasets  # noqa: F401  # only whether it is there
    except ImportError:
        with pytest.raises(InputError, match=r"autoopt\[hf\]"):
            open_data({"data_name": "some/thing", "split": "test", "input_cols": ["x"]})


def embedding_model():
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "wide"], ["y"]),
    ]
    ids = builders.tensor("ids", ["batch", "seq"], TensorProto.INT32)
    flag = builders.tensor("flag", [], TensorProto.BOOL)
    return builders.model(nodes, [ids, flag], [builders.tensor("y", ["batch", "seq", 2])], {"table": np.ones((5, 2))})


def test_synthetic_items_suit_the_models_inputs(tmp_path):
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


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("class", Y),
        ("class", np.eye(3)[Y]),
        ("class", np.stack([Y, Y], 1)),
        ("value", Y.astype(np.float32)),
        ("tensor", X),
        ("tensor", X.astype(np.uint8)),
        (None, None),
    ],
)
def test_describe_tells_the_kind_of_labels(tmp_path, kind, labels):
    np.savez(tmp_path / "d.npz", x=X, **({} if labels is None else {"labels": labels}))
    found = describe({"data": str(tmp_path / "d.npz")})
    assert (found["items"], found["label_kind"], found["labels"]) == (6, kind, labels is not None)
    assert found["columns"] == {"x": {"dtype": "float32", "shape": [6, 4], "finite": True}}


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


def test_a_local_hugging_face_folder_is_part_of_the_datas_identity(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.csv").write_text("x,label\n1,0\n")
    config = DataConfig.parse({"data_name": "set", "split": "train"}).resolved(tmp_path)
    before = digest(config)
    (tmp_path / "set" / "a.csv").write_text("x,label\n2,0\n")
    assert digest(config) != before
    assert DataConfig.parse({"data_name": "some/name"}).resolved(tmp_path).data_name == "some/name"


HUGGING_FACE = """
import json, sys
from pathlib import Path
import datasets, tokenizers
from PIL import Image
from autoopt.data import DataConfig, open_data
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


def test_data_sets_that_the_hugging_face_library_saved(tmp_path):
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
