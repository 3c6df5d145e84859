"""The user script."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_passes import SCRIPT

from autoopt.errors import InputError
from autoopt.passes.execution import user_code
from autoopt.passes.runner import describe
from autoopt.script import load_script


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


def test_passes_of_a_script_that_the_data_executed_first_are_known(tmp_path: Path) -> None:
    script = tmp_path / "both.py"
    script.write_text(
        "from autoopt import register\nfrom autoopt.data import register_load_dataset\n\n"
        "@register('of_both')\ndef of_both(model):\n    return model\n\n"
        "@register_load_dataset('of_both')\ndef load():\n    return {}\n"
    )
    load_script(script)
    assert list(user_code.load(str(script)).passes) == ["of_both"]
