"""The result of a finished search, read without SQLAlchemy."""

from __future__ import annotations

import json
import os
from pathlib import Path

from store_helpers import finished_run

from autoopt.store import open_store
from autoopt.store.finished_search import finished_search


def test_the_home_may_have_any_name(tmp_path: Path) -> None:
    home = tmp_path / os.fsdecode(b"100%?#\xff")
    with open_store(None, home) as store:
        run = store.runs.get(finished_run(store))
    result = finished_search(home, run.identity)
    assert result is not None
    assert json.loads(result) == run.result
    assert finished_search(home, "another") is None
