from typing import Any

from autoopt.report.runs import runs_table


def test_one_row_a_run_also_for_those_without_a_result(data: dict[str, Any]) -> None:
    runs = [
        {"run": "0123456789abcdef", "dag": "quick", "model": "cnn", "status": "finished", "created": 0, "result": data},
        {"run": "ff", "dag": "quick", "model": "cnn", "status": "running", "created": 0, "result": None},
    ]
    rows = runs_table(runs).rows
    assert rows[0][0] == "0123456789ab"
    assert rows[0][5:] == ("3: 2 ok, 1 refused", "0.300x (0.290..0.310)", "fold -> static [static: per_channel=true]")
    assert rows[1][4:] == ("running", "-", "-", "-")
