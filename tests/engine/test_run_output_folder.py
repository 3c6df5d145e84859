"""The folder that a package replaces another one in."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from autoopt.engine.run.output_folder import check_out, new_package, recipe_in, remove_package, replaced_note
from autoopt.errors import InputError
from autoopt.working_folder import PREFIX


def write_package(out: Path, label: str, *names: str) -> None:
    with new_package(out) as folder:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(label)


def labels(out: Path) -> dict[str, str]:
    return {str(file.relative_to(out)): file.read_text() for file in out.rglob("*") if file.is_file()}


def test_the_files_of_an_earlier_package_go_and_all_others_stay(tmp_path: Path) -> None:
    write_package(tmp_path, "old", "model.onnx", "model.onnx.data", "inputs.npz", "run.py", "session.json")
    (tmp_path / "notes.txt").write_text("mine")
    write_package(tmp_path, "new", "model.ort", "run.py", "session.json")
    new = dict.fromkeys(("model.ort", "run.py", "session.json"), "new")
    assert labels(tmp_path) == {**new, "notes.txt": "mine"}


def test_weights_of_an_earlier_package_go_also_where_the_user_named_them(tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "weights.bin"
    outside.write_text("mine")
    write_package(out, "old", "part/model.onnx", "part/layers/weights.bin", "part/notes.txt", "model_set.json")
    files = ["model.onnx", "layers/weights.bin", "../../weights.bin", str(outside), "none.bin", 1]
    (out / "part" / "recipe.json").write_text(json.dumps({"model_files": files}))
    write_package(out, "new", "part/model.onnx", "part/recipe.json", "model_set.json")
    new = dict.fromkeys(("part/model.onnx", "part/recipe.json", "model_set.json"), "new")
    assert labels(out) == {**new, "part/notes.txt": "old"}
    assert outside.read_text() == "mine"


def test_a_package_that_fails_changes_nothing(tmp_path: Path) -> None:
    write_package(tmp_path, "old", "model.onnx", "run.py")
    with suppress(MemoryError), new_package(tmp_path) as folder:
        (folder / "run.py").write_text("new")
        raise MemoryError
    assert labels(tmp_path) == {"model.onnx": "old", "run.py": "old"}


def test_the_models_of_a_set_are_replaced_together(tmp_path: Path) -> None:
    write_package(tmp_path, "old", "a/model.onnx", "a/model.onnx.data", "b/model.onnx", "model_set.json")
    write_package(tmp_path, "new", "a/model.onnx", "b/model.onnx", "model_set.json")
    assert labels(tmp_path) == dict.fromkeys(("a/model.onnx", "b/model.onnx", "model_set.json"), "new")


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    abandoned = tmp_path / f"{PREFIX}1"
    abandoned.mkdir()
    (abandoned / "owner").write_text("")
    os.utime(abandoned, (0, 0))
    write_package(tmp_path, "new", "model.onnx")
    assert labels(tmp_path) == {"model.onnx": "new"}


def test_a_removed_package_has_no_model(tmp_path: Path) -> None:
    write_package(tmp_path, "old", "model.onnx", "model.onnx.data", "README.md")
    remove_package(tmp_path)
    assert labels(tmp_path) == {"README.md": "old"}


def test_the_model_of_another_run_is_named_before_the_source_replaces_it(tmp_path: Path) -> None:
    assert replaced_note(tmp_path, "a1") == ""
    ratio = {"value": 0.625, "low": 0.6, "high": 0.65}
    recipe = {"run": "0123456789abcdef", "chain": "simplify -> static", "ratios": {"latency_p50": ratio}}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    note = replaced_note(tmp_path, "a1")
    assert "simplify -> static, 1.60x faster" in note
    assert "'autoopt export 0123456789ab -o DIR' writes it again" in note
    assert replaced_note(tmp_path, "0123456789abcdef") == ""
    for ratios in ({}, [1], {"latency_p50": "fast"}, {"latency_p50": {**ratio, "value": "0.6"}}):
        (tmp_path / "recipe.json").write_text(json.dumps({**recipe, "ratios": ratios}))
        assert "(simplify -> static)" in replaced_note(tmp_path, "a1")
    (tmp_path / "recipe.json").write_text(json.dumps({**recipe, "chain": "source"}))
    assert replaced_note(tmp_path, "a1") == ""


def test_a_model_set_is_known_by_its_own_record(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps({"run": "of an earlier model"}))
    (tmp_path / "model_set.json").touch()
    (tmp_path / "result.json").write_text(json.dumps({"run": "of the set"}))
    assert recipe_in(tmp_path) == {"run": "of the set"}


@pytest.mark.parametrize("content", ["[]", "{", "\x00", "[" * 100_000])
def test_a_broken_recipe_says_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(content)
    assert recipe_in(tmp_path) == {}


def test_a_folder_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    check_out(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def test_an_output_folder_that_is_a_file_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="is a file, not a folder for results"):
            check_out(out)


def test_an_output_folder_that_is_a_link_to_nothing_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to("loop")
    for out in (tmp_path / "link", tmp_path / "loop" / "below"):
        with pytest.raises(InputError, match="is a link to nothing"):
            check_out(out)


@pytest.mark.parametrize(
    ("out", "reason"), [("/proc/out", "/proc: is not writable"), ("a" * 300, "File name too long")]
)
def test_an_output_folder_that_cannot_be_made_is_refused_before_the_run(out: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check_out(Path(out))


def test_files_of_the_user_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    check_out(tmp_path)
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "model.onnx").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"files of yours that the results would replace \(model.onnx, README.md\)"):
        check_out(tmp_path)
    (tmp_path / "recipe.json").write_text('{"run": "1f2e3d4c5b6a"}')
    check_out(tmp_path)  # they belong to an earlier package


@pytest.mark.parametrize("url", ["s3://key:canary@bucket/x", "https://host/x"])
def test_a_url_is_no_output_folder(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for out in (Path(url), Path(url).absolute()):
        with pytest.raises(InputError, match=r"is a URL, not a file or folder; .*'autoopt promote"):
            check_out(out)
