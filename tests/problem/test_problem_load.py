"""Models from folders and archives: several that belong together, or a single one."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

from autoopt.errors import ConfigError, InputError
from autoopt.problem import load
from autoopt.problem.load import check_supported, machine_options, models_of, read_models, with_models
from autoopt.problem.resolve import make_plans
from autoopt.problem.run_request import RunRequest
from autoopt.spec import load_dag
from autoopt.spec.proposal_options import ProposalOptions

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two models, each in a folder of its name."""
    for name in ("front", "back"):
        write(mlp(), tmp_path / "set" / name)
    return tmp_path / "set"


def dag_file(tmp_path: Path, model: str, more: str = "") -> Path:
    file = tmp_path / "d.yaml"
    file.write_text(f"name: d\nmodel: {model}\n{more}passes: {{tidy: simplify}}\nchains: [[tidy]]\n")
    return file


@pytest.mark.parametrize("kind", ["zip", "gztar"])
@pytest.mark.parametrize("whole", [True, False])
def test_the_models_of_an_archive_are_those_of_its_folder(tmp_path: Path, folder: Path, kind: str, whole: bool) -> None:
    base = folder.name if whole else None
    archive = shutil.make_archive(str(tmp_path / "all"), kind, tmp_path if whole else folder, base)
    models = models_of(archive, tmp_path / "home")
    assert list(models) == list(models_of(str(folder), tmp_path)) == ["back", "front"]
    for name, path in models.items():
        assert Path(path).read_bytes() == (folder / name / "model.onnx").read_bytes()


def test_an_archive_on_the_command_line_is_a_set_or_a_single_model(tmp_path: Path, folder: Path) -> None:
    first, parts = read_models([shutil.make_archive(str(tmp_path / "all"), "zip", folder)], tmp_path / "home")
    assert (list(parts), first) == (["back", "front"], parts["back"])
    single = shutil.make_archive(str(tmp_path / "one"), "zip", folder / "back")
    first, parts = read_models([single], tmp_path / "home")
    assert (Path(first).name, parts) == ("model.onnx", {})


def test_a_dag_names_a_folder_or_an_archive_of_models(tmp_path: Path, folder: Path) -> None:
    shutil.make_archive(str(tmp_path / "all"), "zip", folder)
    for model in ("set", "all.zip"):
        file = dag_file(tmp_path, model, "connections: {back.x: front.y}\n")
        assert list(with_models(load_dag(str(file)), tmp_path / "home").parts) == ["back", "front"]
        assert list(make_plans(RunRequest(str(file))).by_name) == ["back", "front"]
    single = dag_file(tmp_path, "set/back")
    assert with_models(load_dag(str(single)), tmp_path).model_path == str(folder / "back" / "model.onnx")


def test_a_folder_given_with_a_dag_takes_the_place_of_its_model(tmp_path: Path, folder: Path) -> None:
    file = dag_file(tmp_path, "other.onnx")
    assert list(make_plans(RunRequest(str(file), folder)).by_name) == ["back", "front"]


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ("empty", "", r"d\.yaml:2: model: no \.onnx file in this folder"),
        ("none.zip", "", r"d\.yaml:2: model: no such file"),
        ("text.zip", "", r"d\.yaml:2: model: cannot be unpacked"),
        ("set/back", "connections: {back.x: front.y}\n", r"d\.yaml:3: connections: is for several models"),
    ],
)
def test_what_holds_no_models_is_an_error_of_the_dag(
    tmp_path: Path, folder: Path, model: str, more: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(ConfigError, match=message):
        with_models(load_dag(str(dag_file(tmp_path, model, more))), tmp_path / "home")


def test_an_archive_without_models_is_named(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").touch()
    archive = shutil.make_archive(str(tmp_path / "texts"), "zip", tmp_path / "texts")
    with pytest.raises(InputError, match=r"texts\.zip: no \.onnx file in this archive"):
        read_models([archive], tmp_path / "home")


DAG: dict[str, Any] = {"name": "d", "passes": {"a": "name_fix"}, "chains": [["a"]]}
MISSING = {"type": "python_env", "python": "/no/such/python"}


@pytest.mark.parametrize(
    ("section", "field", "message"),
    [
        ({"measurement": {"second": 1}}, "measurement.second", "unknown field; did you mean 'seconds'"),
        ({"measurement": {"seconds": "long"}}, "measurement.seconds", "expected a number"),
        ({"measurement": {"rounds": -1}}, "measurement.rounds", "must be"),
        ({"measurement": {"concurrency": 0}}, "measurement.concurrency", "must be at least 1, not 0"),
        ({"measurement": {"quiet_seconds": False}}, "measurement.quiet_seconds", "expected a number"),
        (
            {"data": {"evaluation": {"path": "x.npz", "pre_process": "normalise"}}},
            "data.evaluation.pre_process",
            "unknown pre_process 'normalise'; did you mean 'normalize'",
        ),
        ({"host": MISSING}, "host.python", "no such interpreter: /no/such/python"),
        ({"passes": {"a": {"pass": "name_fix", "host": MISSING}}}, "passes.a.host.python", "no such interpreter"),
        ({"target": {"host": MISSING}}, "target.host.python", "no such interpreter"),
        ({"target": {"python": "/no/such/python"}}, "target.python", "no such interpreter"),
    ],
)
def test_an_unsupported_field_is_named(section: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        check_supported(load_dag({**DAG, **section}))
    assert error.value.field == field


def test_the_target_of_several_is_named_by_its_place() -> None:
    targets = [{"name": "one"}, {"name": "two", "python": "/no/such/python"}]
    with pytest.raises(ConfigError) as error:
        check_supported(load_dag({**DAG, "targets": targets}))
    assert error.value.field == "targets[1].python"


def test_objectives_of_a_pass_need_a_search_pass_by_pass() -> None:
    dag = {**DAG, "passes": {"a": {"pass": "name_fix", "objectives": [{"metric": "size"}]}}}
    with pytest.raises(ConfigError, match="only a pass-by-pass search uses them") as error:
        check_supported(load_dag(dag))
    assert error.value.field == "passes.a.objectives"
    check_supported(load_dag({**dag, "search": {"strategy": "per-chain", "order": "pass-by-pass"}}))


def test_a_supported_dag_passes() -> None:
    python = {"type": "python_env", "python": sys.executable}
    check_supported(load_dag({**DAG, "host": python, "measurement": {"seconds": 1, "rounds": 0}}))


@pytest.mark.parametrize(("cores", "threads"), [(1, None), (2, "1,all"), (8, "1,2,all")])
def test_threads_are_searched_on_a_cpu_with_several_cores(
    cores: int, threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "cpu", lambda: {"cores": cores})
    assert machine_options(ProposalOptions()).threads == threads
    assert machine_options(ProposalOptions(threads="1")).threads == "1"
    assert machine_options(ProposalOptions(device="gpu")).threads is None
