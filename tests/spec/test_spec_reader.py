"""Files and Python mappings as documents."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoopt.errors import ConfigError
from autoopt.spec.json_reader import read_json
from autoopt.spec.reader import MAX_BYTES, read_document
from autoopt.spec.yaml_reader import read_yaml


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"a: 1\nb: \xff\n", 2, "is not UTF-8 text"),
        (b"a" * (MAX_BYTES + 1), 1, "larger than"),
        ("a: 1".encode("utf-16"), 1, "is not UTF-8 text"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path: Path, content: bytes, line: int, reason: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_document(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert reason in str(caught.value)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml: cannot be read"):
        read_document(tmp_path / "nope.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        read_document(tmp_path)
    with pytest.raises(ConfigError, match="not a path"):
        read_document("a\0b.yaml")


def test_weights_in_the_place_of_a_model_are_answered_with_the_export(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x00")
    with pytest.raises(ConfigError, match="has weights without a model; export the folder of a Hugging Face model"):
        read_document(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["test.npz", "wine.CSV"])
def test_data_in_the_place_of_a_model_is_answered_with_the_option_for_data(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04\xff")
    with pytest.raises(ConfigError) as caught:
        read_document(tmp_path / name)
    assert str(caught.value).endswith(
        f"is data, not a model or a YAML file; name it behind the model: autoopt run model.onnx --data {name}"
    )


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_document(file).value == {"a": 1}


def test_mappings_are_copied_as_json() -> None:
    given: dict[str, Any] = {"a": (1, 2), "b": Path("x/y"), "c": {"d": 1.5}}
    document = read_document(given)
    assert document.value == {"a": [1, 2], "b": "x/y", "c": {"d": 1.5}}
    assert document.value["c"] is not given["c"]


def test_mappings_that_json_cannot_hold_are_refused() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    for mapping, reason in (
        (endless, "nested deeper"),
        ({"a": object()}, "must be a JSON value, not object"),
        ({"a": {1: 2}}, "key 1 must be text"),
        ({"a": float("nan")}, "finite"),
        ({"a": "\x1b"}, "U+001B"),
    ):
        with pytest.raises(ConfigError, match=re.escape(reason)):
            read_document(mapping)


scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
printable = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="\x7f"), max_size=8
).filter(lambda t: all(c.isprintable() for c in t))
documents = st.dictionaries(
    printable.filter(lambda k: k != "<<"),
    st.recursive(
        scalars | printable,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(printable, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(documents)
@settings(max_examples=100)
def test_json_files_and_mappings_give_equal_values(value: dict[str, Any]) -> None:
    found, _ = read_json(json.dumps(value, indent=1), "f.json")
    assert found == value
    assert read_document(value).value == value


@given(st.text(st.sampled_from("ab:-?[]{},&*!|>'\"%@`#\n \t~<.01\\"), max_size=40))
@settings(max_examples=100)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    for read in (read_yaml, read_json):
        error = refusal(read, text)
        if error is not None:
            assert "\n" not in str(error)
            assert error.line >= 1
            assert str(error).startswith(f"f:{error.line}: ")


def refusal(read: Callable[[str, str], Any], text: str) -> ConfigError | None:
    try:
        read(text, "f")
    except ConfigError as error:
        return error
    return None


def test_a_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dag.yaml")
    with pytest.raises(ConfigError, match=r"dag\.yaml:1: is empty"):
        read_document(tmp_path / "dag.yaml")


def test_a_pipe_is_read_up_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "dag.yaml"
    file.write_text("# " + 200_000 * "x" + "\nname: piped\n")  # more than a pipe holds
    with subprocess.Popen(["cat", file], stdout=subprocess.PIPE) as writer:
        assert read_document(f"/dev/fd/{writer.stdout.fileno()}").value == {"name": "piped"}
