"""YAML, JSON and Python values as documents, and fields that a command overrides."""

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

from autoopt.errors import ConfigError, InputError
from autoopt.spec import load_dag
from autoopt.spec.document import MAX_DEPTH
from autoopt.spec.reader import MAX_BYTES, overridden, parse_fields, read_document, read_json, read_yaml


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("True", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("-12", -12),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2001-01-01", "2001-01-01"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1.2.3", "1.2.3"),
        ("'12'", "12"),
        ('"true"', "true"),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    found, _ = read_yaml(f"a: {text}\n", "f.yaml")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_every_field_has_the_line_it_is_written_on() -> None:
    text = "a: 1\nb:\n  - x\n  -\n    c: 2\n"
    value, lines = read_yaml(text, "f.yaml")
    assert value == {"a": 1, "b": ["x", {"c": 2}]}
    assert lines[("a",)] == 1
    assert lines[("b",)] == 2
    assert lines[("b", 0)] == 3
    assert lines[("b", 1, "c")] == 5


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\na: 2\n", 2, "duplicate key 'a' (first in line 1)"),
        ("a: &x 1\nb: 2\n", 1, "anchors are not allowed"),
        ("a: 1\nb: *x\n", 2, "aliases are not allowed"),
        ("a: 1\nb: !!python/object:os.system x\n", 2, "tags are not allowed"),
        ("a: !!str 1\n", 1, "tags are not allowed"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge keys are not allowed"),
        ("%YAML 1.1\n---\na: 1\n", 1, "must be YAML 1.2"),
        ("? [a, b]\n: 1\n", 1, "a key must be text"),
        ("a: 1\n b: 2\n", 2, "is not YAML"),
        ("a: [1, 2\n", 2, "is not YAML"),
        ("a: .inf\n", 1, "finite"),
        ("a: .nan\n", 1, "finite"),
        ("a: 1e999\n", 1, "finite"),
        (f"a: {'9' * 31}\n", 1, "more than 30 digits"),
        ("a: " + "[" * 40 + "]" * 40, 1, f"nested deeper than {MAX_DEPTH}"),
        ('a: "\\e[31m"\n', 1, "U+001B"),
        ('"a\\0": 1\n', 1, "U+0000"),
        ("", 1, "is empty"),
        ("a: \x00\n", 1, "is not YAML"),
        ("\ta: 1\n", 1, "is not YAML"),
    ],
)
def test_yaml_that_is_refused(text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml(text, "f.yaml")
    assert reason in str(caught.value)
    assert caught.value.line >= line
    assert "\n" not in str(caught.value)


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    bomb = "a: &a [x,x]\n" + "".join(f"{c}: &{c} [*{p},*{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(ConfigError, match=r"f\.yaml:1: a: anchors are not allowed|f\.yaml:1: anchors are not allowed"):
        read_yaml(bomb, "f.yaml")


def test_json_gives_the_same_value_and_its_own_lines() -> None:
    text = '{\n "a": 1,\n "b": [\n  "x",\n  {"c": -2.5e0, "d": null, "e": [true, false]}\n ]\n}'
    value, lines = read_json(text, "f.json")
    assert value == json.loads(text)
    assert lines[("a",)] == 2
    assert lines[("b", 1, "c")] == 5


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{"a": 1,\n "a": 2}', 2, "duplicate key 'a'"),
        ('{"a": NaN}', 1, "NaN is not a JSON number"),
        ('{"a": Infinity}', 1, "not a JSON number"),
        ('{"a": 1e999}', 1, "finite"),
        ('{"a": ' + "9" * 5000 + "}", 1, "digits"),
        ("[" * 100_000, 1, "nested deeper"),
        ('{"a":\n}', 2, "is not JSON"),
        ("", 1, "is not JSON"),
        ('{"a": "\\ud800"}', 1, "U+D800"),
        ('{"a": "\\u0000"}', 1, "U+0000"),
    ],
)
def test_json_that_is_refused(text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_json(text, "f.json")
    assert reason in str(caught.value)
    assert caught.value.line == line


DAG = {"name": "d", "passes": {"a.b": {"pass": "simplify"}, "c": None}, "chains": [["a.b", "c"]], "search": "none"}


def test_values_are_json_or_yaml_or_text() -> None:
    fields = parse_fields(["search.seed=7", "search.order=pass-by-pass", "chains=[[a, b]]", "x=a=b"])
    assert fields == {"search.seed": 7, "search.order": "pass-by-pass", "chains": [["a", "b"]], "x": "a=b"}


@pytest.mark.parametrize("given", [["seed"], ["=7"], ["a=1", "a=2"], ["a=[1"]])
def test_malformed_assignments_are_refused(given: list[str]) -> None:
    with pytest.raises(InputError, match="--set"):
        parse_fields(given)


def test_fields_of_nodes_with_dots_and_of_missing_sections_are_set() -> None:
    fields: dict[str, Any] = {"passes.a.b.params.engine": "x", "passes.c.pass": "name_fix", "target.threads": 2}
    spec = load_dag(overridden(read_document(DAG), fields))
    assert spec.passes["a.b"].params == {"engine": "x"}
    assert spec.target is not None
    assert spec.target.threads == 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("search.seed", 7, "<dict>:1: search: is no mapping of fields; set it as a whole: --set search=..."),
        ("target.thread", 2, "<dict>: target.thread: unknown field; did you mean 'threads'?"),
        ("trgets", [], "<dict>: trgets: unknown field; did you mean 'targets'?"),
    ],
)
def test_mistakes_name_the_field_and_no_line(name: str, value: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        load_dag(overridden(read_document(DAG), {name: value}))
    assert str(error.value) == said
