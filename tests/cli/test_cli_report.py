import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_the_page_holds_result_trials_and_lineage(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    code, out, err = call("report", "--out", "page.html")
    assert (code, out, err) == (0, "wrote page.html\n", "")
    page = (tmp_path / "page.html").read_text()
    for expected in ("quick", "fold -&gt; static", "batchnorm_folding", "refused", "odd", "<svg"):
        assert expected in page
    assert json.loads(call("report", "--json").out) == {"run": filled["run"], "path": str(tmp_path / "report.html")}


def test_a_place_that_cannot_be_written_is_wrong_input(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, err = call("report", "--out", "no/such/folder/x.html")
    assert (code, out) == (2, "")
    assert err.startswith("no/such/folder/x.html: cannot write the report")
