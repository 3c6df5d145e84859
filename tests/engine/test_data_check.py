"""Data that does not belong to the model is told before anything runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoopt.data.description import Column, DataDescription
from autoopt.errors import InputError
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.problem.data_check import check_data

DAG: dict[str, Any] = {
    "passes": {"tidy": {"pass": "simplify"}},
    "chains": [["tidy"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}
EMPTY = Inspection((), (), {"": 17}, 8, {}, 0, 0)
GOOD = np.ones((20, 8), np.float32)


def notes_on(description: DataDescription, inspection: Inspection, where: str) -> list[str]:
    return list(map(str, check_data(description, inspection, where)))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": GOOD, "b": GOOD}, "the data has: a, b; choose it with --inputs NAME, and the labels with --label NAME"),
        ({"x": np.ones((20, 9), np.float32)}, "has shape .20, 9., the model expects .*8"),
    ],
)
def test_wrong_names_and_shapes_are_one_line(
    go: Any, mlp_file: Path, tmp_path: Path, arrays: dict[str, Any], said: str
) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InputError, match=said) as caught:
        go(DAG, model=mlp_file, data=str(tmp_path / "d.npz"))
    assert str(caught.value).startswith(f"{tmp_path / 'd.npz'}: data: ")


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "not a readable .npz file"), (None, "has shape .20, 9., the model expects .*8")]
)
def test_calibration_data_is_read_before_anything_runs(
    go: Any, mlp_file: Path, tmp_path: Path, content: bytes | None, said: str
) -> None:
    np.savez(tmp_path / "d.npz", x=GOOD)
    if content is None:
        np.savez(tmp_path / "c.npz", x=np.ones((20, 9), np.float32))
    else:
        (tmp_path / "c.npz").write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        go(DAG, model=mlp_file, data=str(tmp_path / "d.npz"), calibration=str(tmp_path / "c.npz"))
    assert str(caught.value).startswith(str(tmp_path / "c.npz"))


def test_odd_data_is_noted(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    odd = GOOD.copy()
    odd[3, 3] = np.nan
    np.savez(tmp_path / "d.npz", other=odd, labels=np.full(20, 77))
    notes = " ".join(go(DAG, model=mlp_file, data=str(tmp_path / "d.npz")).notes)
    assert "using array 'other' as the model's input 'x'" in notes
    assert "WARNING: the array for 'x' contains NaN or infinite values; leave these items out" in notes


def test_a_source_that_the_runtime_refuses_is_no_choice(go: Any, tmp_path: Path) -> None:
    from builders import regex_segfault, write

    path = write(regex_segfault(), tmp_path / "refused")
    dag = {**DAG, "passes": {"tidy": {"pass": "name_fix"}}, "objectives": [{"metric": "latency_p50"}]}
    with pytest.raises(InputError, match=r"the source model does not run on generated inputs .*; no pass .*repairs it"):
        go(dag, model=path)


@pytest.mark.parametrize(
    ("output", "fits"),
    [
        (ValueSpec("y", "float32", ("n", 3)), True),
        (ValueSpec("y", "float32", ("n", None)), True),
        (ValueSpec("y", "int64", ("n",)), True),
        (ValueSpec("y", "float32", None), True),
        (ValueSpec("y", "float32", ("n", 10)), False),
        (ValueSpec("y", "float32", ("n", 20, 3)), False),
        (ValueSpec("y", "float32", ("n",)), False),
    ],
)
def test_names_of_classes_count_in_sorted_order_where_an_output_has_as_many(output: ValueSpec, fits: bool) -> None:
    names = ("ant", "bee", "cat")
    description = DataDescription(9, {}, labels=True, label_kind="class", label_text="cat", class_names=names)
    inspection = replace(EMPTY, outputs=(output,))
    if fits:
        note = "labels: the names ant, bee, cat count as classes 0 to 2, in sorted order"
        assert notes_on(description, inspection, "d.csv") == [note]
    else:
        with pytest.raises(InputError, match="labels are 3 different texts such as 'cat', which no output can equal"):
            notes_on(description, inspection, "d.csv")


def test_labels_that_are_numbers_as_text_are_fine(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=GOOD, labels=np.array(["0", "1"] * 10))
    assert go(DAG, model=mlp_file, data=str(tmp_path / "d.npz")).baseline.metrics["accuracy"] is not None


def test_inputs_that_may_be_absent_or_are_fed_back_need_no_data(go: Any, tmp_path: Path) -> None:
    from builders import model, tensor, write
    from onnx import helper

    nodes = [helper.make_node("Add", ["x", "h"], ["y"]), helper.make_node("Identity", ["y"], ["next"])]
    made = model(nodes, [tensor("x", [1, 8]), tensor("h", [1, 8])], [tensor("y", [1, 8]), tensor("next", [1, 8])], {})
    np.savez(tmp_path / "d.npz", x=GOOD)
    data = {"path": str(tmp_path / "d.npz"), "state": {"next": "h"}}
    assert go(DAG, model=write(made, tmp_path / "state"), data=data).status == "finished"
    with pytest.raises(InputError, match="no array for the model's input 'h'"):
        go(DAG, model=tmp_path / "state" / "model.onnx", data=str(tmp_path / "d.npz"))


def test_optional_inputs_may_be_absent(go: Any, tmp_path: Path) -> None:
    from builders import model, tensor, write
    from onnx import TensorProto, helper

    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 8]))
    maybe = helper.make_value_info("maybe", kind)
    nodes = [helper.make_node("OptionalHasElement", ["maybe"], ["has"]), helper.make_node("Relu", ["x"], ["y"])]
    outputs = [tensor("y", [1, 8]), tensor("has", [], TensorProto.BOOL)]
    made = model(nodes, [tensor("x", [1, 8]), maybe], outputs, {})
    np.savez(tmp_path / "d.npz", x=GOOD)
    result = go(DAG, model=write(made, tmp_path / "optional"), data=str(tmp_path / "d.npz"))
    assert result.status == "finished"
    assert "agreement" in result.baseline.metrics, result.notes


@pytest.mark.parametrize(
    ("expected", "actual", "loader", "remedy"),
    [
        (
            ("n", 13),
            (5, 14),
            "csv",
            "; one column too many: name the label with --label NAME, or choose the others with --inputs A,B,...",
        ),
        (("n", 13), (5, 17), "csv", "; choose the columns with --inputs A,B,... and the label with --label NAME"),
        (("n", 13), (5, 14), "npz", "the model expects ['n', 13]"),
        (("n", 3, 32, 32), (5, 32, 32, 3), "images", "; add --layout NCHW"),
        (("n", 32, 32, 3), (5, 3, 32, 32), "images", "; add --layout NHWC"),
        (("n", 3, 224, 192), (5, 3, 32, 32), "images", "; add --image-size 224x192"),
        (("n", 224, 224, 3), (5, 32, 32, 3), "images", "; add --image-size 224x224"),
        (("n", 1, 28, 28), (5, 3, 28, 28), "images", "; add --grayscale"),
        (("n", 28, 28, 1), (5, 28, 28, 3), "images", "; add --grayscale"),
        (("n", 3, 32, 32), (5, 32, 32, 3), "npz", "; transpose it with numpy: array.transpose(0, 3, 1, 2)"),
        (("n", 3, 64, 64), (5, 3, 32, 32), "npz", "the model expects ['n', 3, 64, 64]"),
        (
            ("n", 3, 8, 8),
            (50, 2),
            "csv",
            " or a folder of images if the input is an image",
        ),
        (("n", 3, 8, 8), (50, 192), "csv", "; reshape each row to [3, 8, 8] in a pre_process"),
        ((1, 3, 8), (50,), "csv", "the model expects [1, 3, 8]"),
        (("n", 8), (50, 1, 3, 8), "csv", "the model expects ['n', 8]"),
        ((8,), (50, 7), "csv", "; choose the columns with --inputs A,B,... and the label with --label NAME"),
        (
            (1, 1, 8),
            (50, 7),
            "csv",
            " or a folder of images if the input is an image",
        ),
    ],
)
def test_a_shape_that_does_not_fit_names_the_option_that_helps(
    expected: tuple[int | str, ...], actual: tuple[int, ...], loader: str, remedy: str
) -> None:
    inspection = replace(EMPTY, inputs=(ValueSpec("x", "float32", expected),))
    description = DataDescription(5, {"x": Column("float32", actual, True)}, loader=loader)
    with pytest.raises(InputError) as refused:
        notes_on(description, inspection, "d.npz")
    assert str(refused.value).endswith(remedy)


@pytest.mark.parametrize(
    ("loader", "shape", "said"), [("images", (5, 1, 2, 2), "the images"), ("csv", (5, 2), "2 columns")]
)
def test_data_are_called_what_the_user_calls_them(loader: str, shape: tuple[int, ...], said: str) -> None:
    inspection = replace(EMPTY, inputs=(ValueSpec("x", "float32", ("n", *shape[1:])),))
    description = DataDescription(5, {"input": Column("float32", shape, True)}, loader=loader)
    assert notes_on(description, inspection, "d") == [f"data: using {said} as the model's input 'x'"]


FLOATS = {"x": ("n", 2)}


@pytest.mark.parametrize(
    ("inputs", "description", "said"),
    [
        ({"x": ("n", 13)}, DataDescription(5, {"x": Column(shape=(5, 14))}, labels=True, loader="csv"), "A,B,...$"),
        (
            {**FLOATS, "h": ("n", 3)},
            DataDescription(5, {"x": Column(shape=(5, 2))}, loader="sounds"),
            "no array for the model's input 'h'.* sounds are for one input only: give",
        ),
        ({}, DataDescription(5, {}, labels=True, broken_labels=2), "2 of 5 labels are NaN or infinite; leave"),
        (FLOATS, DataDescription(5, {"x": Column("<U1", (5, 2))}), "'x' holds text, the model expects float32"),
        (FLOATS, DataDescription(5, {"x": Column("object", (5, 2))}), "'x' holds text, the model expects float32"),
        (FLOATS, DataDescription(5, {"x": Column("[('a', '<f4')]", (5, 2))}), "'x' holds records or raw bytes"),
        (FLOATS, DataDescription(5, {"x": Column("|V8", (5, 2))}), "'x' holds records or raw bytes"),
        ({"ids": ("n", 2)}, DataDescription(5, {"text": Column("<U9", (5,))}), "for texts, add --tokenizer"),
        (
            {"ids": ("n", 2), "mask": ("n", 2)},
            DataDescription(5, {"text": Column("<U9", (5,))}),
            "for texts, add --tokenizer",
        ),
    ],
)
def test_data_that_the_model_cannot_use_are_refused_with_a_remedy(
    inputs: dict[str, tuple[int | str, ...]], description: DataDescription, said: str
) -> None:
    kind = "int64" if "ids" in inputs else "float32"
    inspection = replace(EMPTY, inputs=tuple(ValueSpec(name, kind, shape) for name, shape in inputs.items()))
    with pytest.raises(InputError, match=said):
        notes_on(description, inspection, "d")


@pytest.mark.parametrize(
    ("given", "span", "expected", "note"),
    [
        ("complex64", None, "float32", "is complex: the imaginary parts are dropped"),
        ("datetime64[D]", None, "float32", r"holds dates or times: they are read as numbers \(datetime64\[D\]\)"),
        ("bool", None, "float32", r"is boolean: it is read as 0 and 1 \(float32\)"),
        ("uint8", (0, 255), "float32", "integers from 0 to 255, as images do: .*add --scale 0.003922"),
        ("int64", (3, 250), "float16", "integers from 3 to 250, as images do"),
        ("float64", None, "int64", "is float64: fractions are cut off"),
        ("int64", (-1, 300), "int8", "integers from -1 to 300, which do not fit into the model's int8"),
        ("int64", (-1, 3), "uint8", "do not fit into the model's uint8"),
        ("float64", None, "float32", ""),
        ("int64", (0, 3), "float32", ""),
        ("int64", (-100, 100), "int8", ""),
        ("uint8", (0, 255), "uint8", ""),
    ],
)
def test_a_lossy_or_doubtful_cast_is_noted(given: str, span: tuple[int, int] | None, expected: str, note: str) -> None:
    inspection = replace(EMPTY, inputs=(ValueSpec("x", expected, ("n", 2)),))
    notes = notes_on(DataDescription(5, {"x": Column(given, (5, 2), True, span=span)}), inspection, "x.npz")
    assert len(notes) == bool(note)
    assert re.search(f"^data: the array for 'x' .*{note}|^$", "".join(notes))


@pytest.mark.parametrize(("span", "fits"), [((0, 99), True), ((-100, 0), True), ((0, 100), False), ((-101, 0), False)])
def test_ids_that_the_model_does_not_know_are_refused(span: tuple[int, int], fits: bool) -> None:
    inspection = replace(EMPTY, inputs=(ValueSpec("ids", "int64", ("n", 2)),), table_lengths={"ids": 100})
    description = DataDescription(5, {"ids": Column("int64", (5, 2), span=span)})
    made_up = replace(description, made_up=True)
    assert notes_on(made_up, inspection, "x.npz") == []
    if fits:
        assert notes_on(description, inspection, "x.npz") == []
        return
    with pytest.raises(InputError, match=f"'ids' holds ids from {span[0]} to {span[1]}, the model knows 0 to 99; use"):
        notes_on(description, inspection, "x.npz")


def test_an_array_that_is_no_input_is_named() -> None:
    inspection = replace(EMPTY, inputs=(ValueSpec("x", "float32", ("n", 2)),))
    columns = {"x": Column("float32", (5, 2), True), "truth": Column("int64", (5,))}
    (note,) = notes_on(DataDescription(5, columns), inspection, "d.npz")
    assert note.endswith("'truth' is no input of the model and is ignored; if it holds the labels, add --label truth")
    (note,) = notes_on(DataDescription(5, columns, labels=True, label_kind="class"), inspection, "d.npz")
    assert note.endswith("is ignored")


def test_an_array_that_tokenizers_always_make_is_not_named() -> None:
    inspection = replace(EMPTY, inputs=(ValueSpec("ids", "int64", ("n", 2)),))
    columns = {"ids": Column("int64", (5, 2), True), "token_type_ids": Column("int64", (5, 2), True)}
    assert notes_on(DataDescription(5, columns), inspection, "d.npz") == []


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((50, 8), ("batch", 8)),
        ((50, 8), (8,)),
        ((50, 8), (1, 1, 8)),
        ((), (1,)),
        ((50,), ()),
        ((50, 9), ("batch", None)),
    ],
)
def test_a_batch_axis_may_be_added_or_dropped(shape: tuple[int, ...], expected: tuple[int | str | None, ...]) -> None:
    inspection = replace(EMPTY, inputs=(ValueSpec("x", "float32", expected),))
    assert notes_on(DataDescription(50, {"x": Column("float32", shape)}), inspection, "d.npz") == []


@pytest.mark.parametrize("name", ["input_ids", "tokens"])
def test_tokens_alone_are_enough_for_a_decoder_with_a_cache(name: str) -> None:
    shapes = {"input_ids": ("N", "T"), "attention_mask": ("N", "P + T"), "past_key_values.0.key": ("N", 2, "P", 4)}
    inspection = replace(EMPTY, inputs=tuple(ValueSpec(each, "int64", shape) for each, shape in shapes.items()))
    notes = notes_on(DataDescription(20, {name: Column("int64", (20, 8))}), inspection, "d.npz")
    used = ["data: using array 'tokens' as the model's input 'input_ids'"] if name == "tokens" else []
    assert notes == used
    columns = {"attention_mask": Column("int64", (20, 8)), "x": Column("int64", (20, 8))}
    with pytest.raises(InputError, match="no array for the model's input 'input_ids'"):
        notes_on(DataDescription(20, columns), inspection, "d.npz")
