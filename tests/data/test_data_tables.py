"""CSV and Parquet files."""

from __future__ import annotations

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


def test_a_table_of_labels_alone_is_no_input(tmp_path):
    (tmp_path / "d.csv").write_text("label\n1\n2\n")
    with pytest.raises(InputError, match=r"d\.csv: has no columns besides the label"):
        open_data(str(tmp_path / "d.csv"))


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


def test_the_byte_order_mark_of_excel_belongs_to_no_name(tmp_path):
    data = load(tmp_path, "\ufefflabel,a,b\n1,2,3\n0,5,6\n")
    assert data.labels.tolist() == [1, 0]
    assert data.columns["input"].tolist() == [[2, 3], [5, 6]]
