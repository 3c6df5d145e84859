"""What inputs and outputs hold, told by names, types, shapes and tables."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.data.decoder import decoder_of
from autoopt.data.fit import InputSpec
from autoopt.errors import InputError
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.model.roles import Kind, input_roles, may_be_same


@pytest.mark.parametrize(
    ("name", "type_", "shape", "kind"),
    [
        ("audio", "int64", ("batch", "n"), "other"),  # integers are no sound
        ("lens", "int64", ("batch",), "length"),
        ("x_length", "int64", ("batch",), "length"),
        ("x_length", "float", ("batch",), "other"),
        ("max_length", "int64", ("batch",), "other"),
        ("min_len", "int64", ("batch",), "other"),
        ("sr", "int64", (), "sample rate"),
        ("sample_rate", "int64", (), "sample rate"),
        ("sampling_rate", "int64", (), "sample rate"),
        ("s", "int64", (), "other"),
        ("h0", "float", (1, "batch", 64), "state"),
        ("features", "float", ("batch", "time", 80), "spectrum"),
        ("input_ids", "int64", ("batch", "seq"), "tokens"),
        ("attention_mask", "int64", ("batch", "seq"), "token mask"),
        ("mask", "float", ("batch", 1, "h", "w"), "mask"),
        ("token_type_ids", "int64", ("batch", "seq"), "token types"),
        ("position_ids", "int64", ("batch", "seq"), "positions"),
        ("codes", "int64", ("batch", 50), "indices"),
        ("x", "float", ("batch", 3, "h", "w"), "image"),
        ("x", "float", ("batch", 24, 24, 3), "image"),
        ("x", "float", ("batch", 7), "other"),
    ],
)
def test_names_types_shapes_and_tables_tell_what_an_input_holds(
    name: str, type_: str, shape: tuple[Any, ...], kind: Kind
) -> None:
    assert input_roles([InputSpec(name, f"tensor({type_})", shape)], tables=["codes"])[name].kind == kind


@pytest.mark.parametrize(
    ("inputs", "axes"),
    [
        ([("audio", ("batch", "n"))], {"audio": 1}),
        ([("audio", ("batch", 1, "n"))], {"audio": 2}),
        ([("x", ("batch", 16000))], {"x": 1}),
        ([("x", ("batch", 100))], {}),  # too short for a sound
        ([("x", ("batch", "n"))], {}),  # nothing says that it is one
        ([("audio", ("batch", "n", "m"))], {}),  # two axes may hold the samples
        ([("x", (16000, 16000))], {}),
        ([("x", (1, 512)), ("state", (2, 1, 64))], {"x": 1}),  # a piece, because the model has state
        ([("x", ("batch", "n")), ("state", (2, 1, 64))], {"x": 1}),
        ([("x", (1, 100)), ("state", (2, 1, 64))], {}),  # shorter than a piece
        ([("audio", ("n",))], {"audio": 0}),
    ],
)
def test_sounds_are_told_by_name_length_and_state(
    inputs: list[tuple[str, tuple[Any, ...]]], axes: dict[str, int]
) -> None:
    specs = [InputSpec(name, "tensor(float)", shape) for name, shape in inputs]
    roles = input_roles(specs)
    assert {name: role.axes[0] for name, role in roles.items() if role.kind == "sound"} == axes


def test_what_the_user_says_comes_first() -> None:
    specs = [InputSpec("x", "tensor(float)", ("batch", 100)), InputSpec("y", "tensor(float)", ("batch", 7, 32, 32))]
    roles = input_roles(specs, given={"x": "sound", "y": "image"})
    assert [(role.kind, role.axes) for role in roles.values()] == [("sound", (1,)), ("image", (2, 3))]


def test_an_inspection_takes_the_roles_that_the_user_gives() -> None:
    inputs = (ValueSpec("tokens", "int64", ("n", "seq")), ValueSpec("kept", "float32", ("n", 2, "past", 4)))
    inspection = Inspection(inputs, (), {"": 17}, 8, {}, 0, 0)
    assert decoder_of(inspection.input_roles) is None
    given = inspection.with_roles({"kept": "cache"})
    assert (given.input_roles["kept"].kind, given.input_roles["kept"].axes) == ("cache", (2,))
    assert Inspection.from_json(given.to_json()) == given
    with pytest.raises(InputError, match=r"measurement.roles: no input 'kepd'.*kept"):
        inspection.with_roles({"kepd": "cache"})


@pytest.mark.parametrize(
    ("shape", "declared", "fits"),
    [((2, 3), ("n", 3), True), ((2, 3), (2, None), True), ((2, 3), (2,), False), ((2, 3), (3, 3), False)],
)
def test_a_shape_fits_where_the_numbers_agree(
    shape: tuple[int, ...], declared: tuple[int | str | None, ...], fits: bool
) -> None:
    assert may_be_same(shape, declared) is fits


def test_outputs_are_known_by_the_inputs_that_take_them_and_by_their_names() -> None:
    inputs = (
        ValueSpec("input_ids", "int64", ("batch", "seq")),
        ValueSpec("past_key_values.0.key", "float32", ("batch", 2, "past", 4)),
    )
    outputs = (
        ValueSpec("logits", "float32", ("batch", "seq", 9)),
        ValueSpec("present.0.key", "float32", ("batch", 2, "all", 4)),
        ValueSpec("sentence_embedding", "float32", ("batch", 9)),
    )
    roles = Inspection(inputs, outputs, {"": 17}, 8, {}, 0, 0).output_roles
    assert [role.kind for role in roles.values()] == ["other", "cache", "embedding"]
    assert roles["present.0.key"].feeds == "past_key_values.0.key"


@pytest.mark.parametrize(("further", "feeds"), [((4, 1, 96), "h0"), ((4, 1, 95), "")])
def test_a_further_output_of_the_shape_of_a_state_feeds_it(further: tuple[int, ...], feeds: str) -> None:
    inputs = (ValueSpec("x", "float32", ("n", 3)), ValueSpec("h0", "float32", (4, 1, 96)))
    outputs = (ValueSpec("y", "float32", ("n", 3)), ValueSpec("state", "float32", further))
    assert Inspection(inputs, outputs, {"": 17}, 8, {}, 0, 0).output_roles["state"].feeds == feeds
