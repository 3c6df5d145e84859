"""The table of the time of each kind of operator."""

from __future__ import annotations

from autoopt.report.runs.operator_table import MOST_OPERATORS, operator_table
from autoopt.results.operator_times import OperatorTime, OperatorTimes


def test_the_last_row_sums_up_the_operators_that_are_not_shown() -> None:
    first = OperatorTime("Conv", 5.0, 2.0)
    few = OperatorTimes(20, (first, *(OperatorTime(f"Op{i}", 0.5, 0.25) for i in range(MOST_OPERATORS + 1))))
    *rows, last = operator_table(few).rows
    assert len(rows) == MOST_OPERATORS
    assert (rows[0][0], rows[0][-1]) == ("Conv", "-3.00 ms")
    assert (last[0], last[-1]) == ("2 others", "-0.5000 ms")


def test_an_operator_of_one_model_alone_has_a_change() -> None:
    (row,) = operator_table(OperatorTimes(20, (OperatorTime("QuantizeLinear", None, 0.4),))).rows
    assert (row[0], row[-1]) == ("QuantizeLinear", "+0.4000 ms")
