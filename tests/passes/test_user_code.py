"""The user script."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_passes import SCRIPT

from autoopt.errors import InputError
from autoopt.passes.runner import describe


def test_loading_a_script_replaces_all_passes_of_scripts(tmp_path: Path, script: str) -> None:
    def names(path: str | None) -> set[str]:
        return {info["name"] for info in describe({"user_script": path})["passes"]}

    assert "smaller" in names(script)
    other = tmp_path / "other.py"
    other.write_text("from autoopt import register\n@register('other')\ndef other(model): ...\n")
    assert {"other"} == names(str(other)) - names(None)
    assert "smaller" in names(script)  # read before, not executed again
    Path(script).write_text(SCRIPT.replace('"smaller"', '"larger"'))
    now = names(script)
    assert "larger" in now
    assert "smaller" not in now


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("from autoopt import register\n@register('simplify')\ndef f(model): ...", "'simplify' is registered twice"),
    ],
)
def test_a_broken_script_is_the_users_error(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(InputError, match=reason):
        describe({"user_script": str(path)})
    assert describe({})["source_digest"] == ""
