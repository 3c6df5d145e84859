import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.report.table import Column, Table, markdown, plain, table_of, write_lines, write_table

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TABLE = Table(("name", "value"), (("a [bold]x[/bold]", "1"), ("b", "22")), title="t", right=frozenset({1}), strong=1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_is_aligned_and_one_line_a_row() -> None:
    assert plain(TABLE).splitlines() == [
        "t",
        "name              value",
        "a [bold]x[/bold]      1",
        "b                    22",
    ]


def test_plain_never_wraps_or_breaks_rows() -> None:
    text = plain(Table(("a",), (("x " * 500 + "\nsecond\x1b[2J",),)))
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text


def test_a_terminal_gets_the_same_cells_and_no_markup_of_ours() -> None:
    stream = Terminal()
    write_table(TABLE, stream)
    assert "a [bold]x[/bold]" in stream.getvalue()
    assert "22" in stream.getvalue()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_narrow_terminal_breaks_no_name_and_no_figure(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = (("16488d9d02d2", "0.270x (0.267..0.272)", "fold -> static [static: per_channel=false, bits=8]"),)
    stream = Terminal()
    write_table(Table(("run", "ratio", "chain"), rows, right=frozenset({1})), stream)
    shown = stream.getvalue()
    assert "16488d9d02d2" in shown
    assert "0.270x (0.267..0.272)" in shown
    assert "per_channel=false" in shown
    assert max(map(len, ANSI.sub("", shown).splitlines())) <= columns


def test_where_not_even_the_names_fit_beside_each_other_each_cell_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "36")
    rows = (("28b6333fa66b", "2026-11-22 03:26", "-", "constants -> fold -> static [static: per_channel=true]"),)
    stream = Terminal()
    write_table(Table(("run", "began", "best", "chain"), rows, title="runs"), stream)
    assert ANSI.sub("", stream.getvalue()).splitlines() == [
        "runs",
        "28b6333fa66b",
        "  began  2026-11-22 03:26",
        "  chain  constants -> fold -> static",
        "         [static: per_channel=true]",
    ]


def test_lines_keep_their_indent_and_lose_control_characters() -> None:
    stream = io.StringIO()
    write_lines(["  a  b", "c\x1b[1m\nd"], stream)
    assert stream.getvalue() == "  a  b\nc?[1m?d\n"


CELLS = st.text(max_size=12)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """A table of one to four columns with any text in its cells."""
    count = draw(st.integers(1, 4))
    row = st.tuples(*[CELLS] * count)
    return Table(draw(row), tuple(draw(st.lists(row, max_size=4))), right=frozenset(draw(st.sets(st.integers(0, 3)))))


@given(tables())
def test_any_text_stays_in_its_line(table: Table) -> None:
    text = plain(table)
    assert text.count("\n") == 1 + len(table.rows)
    assert all(line.isprintable() for line in text.splitlines())


@given(tables())
def test_markdown_has_as_many_cells_in_each_line_as_there_are_columns(table: Table) -> None:
    lines = markdown(table).split("\n")
    assert len(lines) == 2 + len(table.rows)
    for line in lines:
        assert line.startswith("| ")
        assert line.endswith(" |")


def test_markdown_escapes_what_would_end_a_cell() -> None:
    assert markdown(Table(("a", "b"), (("x|y", "1\n2"),))).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| x\\|y | 1 2 |",
    ]


def test_a_table_is_made_column_by_column() -> None:
    columns = [Column("name", ["a", "bb"]), Column("value", ["1", "22"], right=True)]
    table = table_of(columns, "title", strong=1)
    assert table == Table(("name", "value"), (("a", "1"), ("bb", "22")), "title", frozenset({1}), 1)
    assert [column.width for column in columns] == [4, 5]
    with pytest.raises(ValueError, match="shorter"):
        table_of([Column("a", ["1", "2"]), Column("b", ["1"])])


def test_long_lines_break_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    write_lines(["one two three four five six", "short", "a-long-name-that-has-no-space"], stream)
    lines = stream.getvalue().splitlines()
    assert lines[:3] == ["one two three four", "  five six", "short"]
    assert "".join(lines[3:]).replace(" ", "") == "a-long-name-that-has-no-space"


def test_a_percentage_is_not_broken_at_the_end_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    write_lines(["accuracy was a 99.5 % and now"], stream)
    assert stream.getvalue() == "accuracy was a\n  99.5 % and now\n"
