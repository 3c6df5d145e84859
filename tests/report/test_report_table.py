import io
import re

import pytest

from autoopt.report.table import Table, plain, write_lines, write_table

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


def test_no_escape_codes_where_it_is_no_terminal() -> None:
    stream = io.StringIO()
    write_table(TABLE, stream)
    assert stream.getvalue() == plain(TABLE)


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
