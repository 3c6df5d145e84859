"""User scripts run once per content, and fail with one line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.passes.execution import user_code
from autoopt.script import SCRIPT_FOLDERS, check_allowed, imported_files, load_script, only_allowed_scripts, script_line


def test_the_same_content_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "passes.py"
    script.write_text("runs = []\nruns.append(1)\n")
    module = load_script(script)
    assert module.runs == [1]
    assert load_script(str(script)) is module


def test_changed_content_runs_again(tmp_path: Path) -> None:
    script = tmp_path / "passes.py"
    script.write_text("value = 1\n")
    first = load_script(script)
    script.write_text("value = 2\n")
    second = load_script(script)
    assert (first.value, second.value) == (1, 2)
    script.write_text("value = 1\n")
    assert load_script(script).value == 1


def test_a_relative_path_starts_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.py").write_text("value = 3\n")
    monkeypatch.chdir(tmp_path)
    assert load_script("here.py") is load_script(tmp_path / "here.py")


def test_dataclasses_of_a_script_find_their_module(tmp_path: Path) -> None:
    script = tmp_path / "records.py"
    box = "@dataclass\nclass Box:\n    size: int = 3\n"
    script.write_text(f"from __future__ import annotations\nfrom dataclasses import dataclass\n\n{box}")
    module = load_script(script)
    assert module.Box().size == 3
    assert sys.modules[module.Box.__module__] is module


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_module_at_all\n", "ModuleNotFoundError"),
        ("raise ValueError('two\\nlines')\n", "ValueError: two lines"),
    ],
)
def test_an_exception_names_the_file_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    script = tmp_path / "broken.py"
    script.write_text(text)
    with pytest.raises(InputError) as error:
        load_script(script)
    assert str(error.value).startswith(f"{script}:1: {message}")
    assert "\n" not in str(error.value)


def test_an_error_that_autoopt_raises_in_the_script_keeps_its_words(tmp_path: Path) -> None:
    script = tmp_path / "refusing.py"
    script.write_text("from autoopt.errors import InputError\nraise InputError('needs a GPU', remedy='use --ep cpu')\n")
    with pytest.raises(InputError) as error:
        load_script(script)
    assert str(error.value) == "needs a GPU; use --ep cpu"


def test_a_script_that_failed_runs_again_once_it_is_mended(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text("from pathlib import Path\nvalue = Path(__file__).with_suffix('.txt').read_text()\n")
    with pytest.raises(InputError, match="FileNotFoundError"):
        load_script(script)
    script.with_suffix(".txt").write_text("ready")
    assert load_script(script).value == "ready"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such user script") as error:
        load_script(tmp_path / "absent.py")
    assert error.value.where == str(tmp_path / "absent.py")
    (tmp_path / "notes.txt").write_text("text")
    with pytest.raises(InputError, match="not a Python file"):
        load_script(tmp_path / "notes.txt")


REFUSED = "this worker may run only scripts in allowed folders"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `allowed/here.py` and `other/there.py`, of which the first is named to the worker."""
    for folder, file in (("allowed", "here.py"), ("other", "there.py")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text(f"value = {file!r}\n")
    monkeypatch.setenv(SCRIPT_FOLDERS, str(tmp_path / "allowed"))
    return tmp_path


def test_a_worker_runs_scripts_only_from_the_folders_named_to_it(folders: Path) -> None:
    assert load_script(folders / "allowed" / "here.py").value == "here.py"
    for path in ("other/there.py", "allowed/../other/there.py"):
        with pytest.raises(InputError, match=REFUSED):
            load_script(folders / path)
    for address in ("http://127.0.0.1:9/here.py", f"file://{folders}/allowed/here.py"):
        with pytest.raises(InputError, match=REFUSED):
            check_allowed(address)


def test_a_link_to_an_allowed_folder_and_an_interpreter_in_it_count(folders: Path) -> None:
    (folders / "link").symlink_to("allowed")
    (folders / "allowed" / "python").symlink_to(sys.executable)
    check_allowed(folders / "link" / "here.py")
    check_allowed(folders / "allowed" / "python")
    with pytest.raises(InputError, match=REFUSED):
        check_allowed(sys.executable)


def test_work_for_others_runs_no_script_unless_a_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SCRIPT_FOLDERS, raising=False)
    script = tmp_path / "mine.py"
    script.write_text("value = 1\n")
    with only_allowed_scripts(), pytest.raises(InputError, match=REFUSED):
        load_script(script)
    assert load_script(script).value == 1
    monkeypatch.setenv(SCRIPT_FOLDERS, str(tmp_path))
    with only_allowed_scripts():
        assert load_script(script).value == 1


def test_the_line_of_a_script_that_an_exception_passed(tmp_path: Path) -> None:
    script = tmp_path / "lines.py"
    script.write_text("def fail():\n    return [][3]\n")
    module = load_script(script)
    with pytest.raises(IndexError) as raised:
        module.fail()
    assert script_line(raised.value) == f"{script}:2"
    assert script_line(KeyError("x")) == ""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that scripts can import; its modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def imports(folder: Path, script: str) -> list[str]:
    (folder / "script.py").write_text(script)
    load_script(folder / "script.py")
    return [str(file.relative_to(folder)) for file in imported_files(folder / "script.py")]


def test_modules_count_through_each_other_and_within_functions(folder: Path) -> None:
    write(folder, {"one.py": "import two\n", "two.py": "import one\n", "late.py": "", "unused.py": ""})
    assert imports(folder, "import one\n\ndef later():\n    import late\n") == ["late.py", "one.py", "two.py"]


def test_modules_of_packages_count(folder: Path) -> None:
    write(folder, {
        "tools/__init__.py": "from . import inner\n",
        "tools/inner.py": "from .deep.last import VALUE\n",
        "tools/deep/__init__.py": "",
        "tools/deep/last.py": "from ..sibling import VALUE\n",
        "tools/sibling.py": "VALUE = 1\n",
        "tools/unused.py": "",
    })  # fmt: skip
    expected = ["__init__.py", "deep/__init__.py", "deep/last.py", "inner.py", "sibling.py"]
    assert imports(folder, "from tools import inner\n") == [f"tools/{name}" for name in expected]


def test_installed_modules_and_unknown_ones_do_not_count(folder: Path) -> None:
    text = "import json, numpy.linalg, autoopt.api\ntry:\n    import no_such.module\nexcept ImportError:\n    pass\n"
    assert imports(folder, text) == []


def test_the_content_of_a_script_changes_with_its_imports(folder: Path) -> None:
    write(folder, {"script.py": "import one\n", "alone.py": "", "one.py": "VALUE = 1\n"})
    before = user_code.load(str(folder / "script.py")).digest
    alone = user_code.load(str(folder / "alone.py"))
    user_code._cache.clear()
    write(folder, {"one.py": "VALUE = 2\n"})
    assert user_code.load(str(folder / "script.py")).digest != before
    assert user_code.load(str(folder / "alone.py")).digest == alone.digest
    assert alone.imports == {}
