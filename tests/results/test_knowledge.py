"""Files of knowledge: read back as written, and refused in one line if they are anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from knowledge_cases import KNOWLEDGE

from autoopt.errors import ConfigError
from autoopt.model.candidate import digest_json
from autoopt.results.knowledge import BUILT_IN_FILE, FORMAT, built_in_knowledge, read_knowledge
from autoopt.spec.reader import MAX_BYTES

Document = dict[str, Any]
Change = Callable[[Document], object]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "knowledge.json"
    KNOWLEDGE.write(file)
    return file


def signed(document: Document) -> str:
    """The document with the digest of its content, as someone with bad intentions would write it."""
    content = {name: value for name, value in document.items() if name != "digest"}
    return json.dumps({**content, "digest": digest_json(content)})


def test_a_file_is_read_as_it_was_written(file: Path) -> None:
    assert read_knowledge(file) == KNOWLEDGE


def test_an_edited_file_is_refused(file: Path) -> None:
    file.write_text(file.read_text().replace('"trials":12', '"trials":13'))
    with pytest.raises(ConfigError, match="the file was edited; export it again"):
        read_knowledge(file)


def test_a_newer_format_asks_for_an_upgrade(file: Path) -> None:
    file.write_text(signed({**KNOWLEDGE.document, "knowledge": FORMAT + 1, "more": 1}))
    with pytest.raises(ConfigError, match="has version 3; this autoopt reads 2; upgrade it"):
        read_knowledge(file)


HOSTILE: dict[str, tuple[Change, str]] = {
    "a huge ratio": (lambda lesson: lesson["best"]["ratios"].update(latency_p50=1e308), "at most 1e+06"),
    "a negative ratio": (lambda lesson: lesson["best"]["ratios"].update(latency_p50=-0.5), "must be above 0"),
    "a huge effect": (lambda lesson: lesson["effects"][0]["latency"].update(mean=1e308), "at most 1e+06"),
    "a negative deviation": (lambda lesson: lesson["effects"][0]["latency"].update(deviation=-1.0), "at least 0"),
    "a text for a number": (lambda lesson: lesson.update(trials="12"), "must be a whole number"),
    "a truth for a number": (lambda lesson: lesson.update(trials=True), "must be a whole number"),
    "a path": (lambda lesson: lesson["best"].update(passes=["../../etc/passwd"]), "passes"),
    "a gain by nothing": (lambda lesson: lesson["best"].update(passes=[]), "must not be empty"),
    "a control character": (lambda lesson: lesson["machine"].update(cpu="\x1b[31m"), "U+001B"),
    "a long text": (lambda lesson: lesson["machine"].update(cpu="x" * 65), "at most 64 characters"),
    "an unknown field": (lambda lesson: lesson.update(host="forge"), "unknown field"),
    "too many operators": (
        lambda lesson: lesson["model"].update(op_counts={f"Op{i}": 1 for i in range(501)}),
        "at most 500",
    ),
    "too many effects": (lambda lesson: lesson.update(effects=lesson["effects"] * 40), "at most 60"),
    "a nested value": (lambda lesson: lesson["effects"][0].update(value=[["x"]]), "value"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_value_is_refused_in_one_line_with_its_place(case: str, file: Path) -> None:
    change, reason = HOSTILE[case]
    document = json.loads(file.read_text())
    change(document["lessons"][0])
    file.write_text(signed(document))
    with pytest.raises(ConfigError) as refused:
        read_knowledge(file)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not JSON"),
        ("[]", "is not a file of knowledge"),
        ("{}", "is not a file of knowledge"),
        ('{"knowledge": 1}', "is required"),
        ('{"knowledge": NaN}', "NaN is not a JSON number"),
        ('{"knowledge": 1e999}', "must be a finite number"),
        ('{"knowledge": 1, "knowledge": 1}', "duplicate key"),
        ("[" * 100_000, "is nested deeper"),
        ("x" * (MAX_BYTES + 1), "is larger than 512 KiB"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, reason: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason) as refused:
        read_knowledge(file)
    assert "\n" not in str(refused.value)


def test_a_file_of_a_gigabyte_is_not_read(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.truncate(1 << 30)
    with pytest.raises(ConfigError, match="is larger than 512 KiB"):
        read_knowledge(file)


def test_the_shipped_file_is_valid_and_was_not_edited() -> None:
    shipped = read_knowledge(BUILT_IN_FILE)
    assert shipped == built_in_knowledge()
    assert shipped.lessons
