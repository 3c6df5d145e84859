"""Names in Markdown and in commands to paste."""

from __future__ import annotations

import shlex

import pytest
from markdown_it import MarkdownIt

from autoopt.report.table import Table, markdown
from autoopt.report.words.markup import markdown_code, markdown_text, shell_word

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
NAMES = [
    "latency_p50",
    "*bold* _both_ __strong__",
    "[link](http://evil)",
    "<script>alert(1)</script>",
    "a|b",
    "back\\slash `tick`` end`",
    "# heading",
    "1. list",
    "- item",
    "&lt; and &#60;",
    "~~gone~~",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is(name: str) -> None:
    tokens = MARKDOWN.parse(markdown_text(name))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    parts = tokens[1].children or []
    assert "".join(part.content for part in parts) == name
    assert {part.type for part in parts} <= {"text", "text_special"}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_cell_of_a_table(name: str) -> None:
    tokens = MARKDOWN.parse(markdown(Table(("model", "run"), ((name, "1"),))))
    cells = [tokens[number + 1] for number, token in enumerate(tokens) if token.type == "td_open"]
    assert ["".join(part.content for part in cell.children or []) for cell in cells] == [name, "1"]


@pytest.mark.parametrize("name", [*NAMES, "`", "``", " ` "])
def test_code_is_shown_as_it_is(name: str) -> None:
    (part,) = MARKDOWN.parseInline(markdown_code(name))[0].children or []
    assert (part.type, part.content) == ("code_inline", name.strip())


@pytest.mark.parametrize(
    "name", ["my model.onnx", "a;rm -rf x", "$(reboot).yaml", "it's", "-rf", "--help", "plain.yaml"]
)
def test_a_path_in_a_command_is_one_word_and_no_option(name: str) -> None:
    (word,) = shlex.split(shell_word(name))
    assert word.removeprefix("./") == name
    assert not word.startswith("-")
