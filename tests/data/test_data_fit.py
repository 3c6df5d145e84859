"""Fitting feeds to the inputs of models."""

from __future__ import annotations

from pathlib import Path

import builders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.data.fit import InputSpec, batch_limit, fit, specs_of
from autoopt.errors import InputError

X = np.arange(12, dtype=np.float64).reshape(3, 4)


def spec(
    name: str = "x", kind: str = "tensor(float)", shape: tuple[int | str | None, ...] | None = ("n", 4)
) -> InputSpec:
    return InputSpec(name, kind, shape)


@pytest.mark.parametrize(
    ("kind", "element", "dtype"),
    [
        ("tensor(float)", "float", "float32"),
        ("tensor(int64)", "int64", "int64"),
        ("tensor(string)", "string", "object"),
        ("optional(tensor(double))", "double", "float64"),
        ("seq(tensor(uint8))", "uint8", "uint8"),
    ],
)
def test_the_element_type_is_read_from_the_type(kind: str, element: str, dtype: str) -> None:
    assert (spec(kind=kind).element, spec(kind=kind).dtype) == (element, np.dtype(dtype))


def test_a_type_that_numpy_lacks_has_no_dtype() -> None:
    assert spec(kind="tensor(bfloat16)").dtype is None


def test_the_inputs_of_a_session_are_described(tmp_path: Path) -> None:
    import onnxruntime

    path = builders.write(builders.mlp(), tmp_path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert specs_of(session) == (InputSpec("x", "tensor(float)", ("batch", 8)),)


def test_arrays_take_the_element_type_of_the_input() -> None:
    fitted = fit({"x": X}, [spec()])
    assert fitted["x"].dtype == np.float32
    np.testing.assert_array_equal(fitted["x"], X)


def test_a_single_array_goes_to_a_single_input_whatever_its_name() -> None:
    np.testing.assert_array_equal(fit({"other": X}, [spec()])["x"], X)


def test_arrays_that_the_model_does_not_take_are_left_out() -> None:
    assert set(fit({"x": X, "labels": X}, [spec()])) == {"x"}


def test_an_input_without_an_array_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match="input 'y'; the data has: x, z"):
        fit({"x": X, "z": X}, [spec("x"), spec("y")])


def test_optional_and_given_inputs_need_no_array() -> None:
    inputs = [spec("x"), spec("o", "optional(tensor(float))"), spec("state")]
    assert set(fit({"x": X, "z": X}, inputs, given=["state"])) == {"x"}


@pytest.mark.parametrize(
    ("shape", "rank", "fitted"), [((1, 4), 1, (4,)), ((4,), 2, (1, 4)), ((3, 4), 2, (3, 4)), ((3, 4), 1, (3, 4))]
)
def test_an_axis_of_one_item_is_dropped_or_added(shape: tuple[int, ...], rank: int, fitted: tuple[int, ...]) -> None:
    model = spec(shape=(None,) * rank)
    assert fit({"x": np.zeros(shape, np.float32)}, [model])["x"].shape == fitted


def test_an_input_of_unknown_rank_takes_any_shape() -> None:
    assert fit({"x": X}, [spec(shape=None)])["x"].shape == X.shape


def test_a_sequence_passes_as_it_is() -> None:
    sequence = [X, X]
    assert fit({"x": sequence}, [spec(kind="seq(tensor(float))", shape=None)])["x"] is sequence  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("inputs", "limit"),
    [
        ([spec(shape=("n", 4))], None),
        ([spec(shape=(8, 4))], 8),
        ([spec(shape=(4,))], 1),
        ([spec(shape=None)], 1),
        ([spec(kind="seq(tensor(float))")], 1),
        ([spec(shape=(8, 4)), spec("y", shape=(2, 4))], 2),
    ],
)
def test_the_batch_is_limited_by_the_first_dimension(inputs: list[InputSpec], limit: int | None) -> None:
    columns = {item.name: X for item in inputs}
    assert batch_limit(inputs, columns) == limit


def test_values_for_all_items_do_not_limit_the_batch() -> None:
    assert batch_limit([spec(), spec("t", shape=())], {"x": X, "t": np.float32(0.5)}) is None  # type: ignore[dict-item]


@given(st.integers(1, 5), st.integers(1, 5))
def test_fitting_twice_changes_nothing(items: int, width: int) -> None:
    model = [spec(shape=("n", width))]
    once = fit({"x": np.ones((items, width))}, model)
    np.testing.assert_array_equal(fit(once, model)["x"], once["x"])


def test_a_state_begins_with_zeros_of_size_one_where_it_is_open() -> None:
    zeros = spec("h", "tensor(float16)", (2, "batch", None, 8)).zeros()
    assert (zeros.shape, zeros.dtype, float(zeros.sum())) == ((2, 1, 1, 8), np.float16, 0.0)
    assert spec(shape=None).zeros().shape == ()
