"""The models of a zoo one by one."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

from autoopt.errors import ConfigError
from autoopt.metrics import Constraint, Objective
from autoopt.spec.zoo import ZooSpec, load_zoo
from autoopt.zoo.zoo_models import BareModel, ZooItem, check_zoo, dag_of, items

DAG = "name: small\npasses: {tidy: simplify}\nchains: [[tidy]]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dag.yaml").write_text(DAG)
    for name in ("one", "two"):
        write(mlp(), tmp_path / name)
    return tmp_path


def zoo_of(folder: Path, models: list[Any], **fields: Any) -> ZooSpec:
    import json

    (folder / "zoo.json").write_text(json.dumps({"name": "z", "dag": "dag.yaml", "models": models, **fields}))
    return load_zoo(folder / "zoo.json")


def test_models_of_the_same_name_get_a_number(folder: Path) -> None:
    write(mlp(), folder / "more" / "one")
    zoo = zoo_of(folder, [{"path": "one/model.onnx"}, {"path": "more/one/model.onnx"}])
    models = items(zoo, folder)
    assert [item.name for item in models] == ["one", "one-2"]
    assert [item.called for item in models] == ["one", "one"]  # the name below its own line


def test_an_archive_is_unpacked_once(folder: Path) -> None:
    with zipfile.ZipFile(folder / "both.zip", "w") as archive:
        for name in ("one", "two"):
            archive.write(folder / name / "model.onnx", f"{name}/model.onnx")
    zoo = zoo_of(folder, [{"path": "both.zip"}])
    first = items(zoo, folder / "home")
    assert [item.name for item in first] == ["one", "two"]
    assert [item.path for item in items(zoo, folder / "home")] == [item.path for item in first]
    assert len(list((folder / "home" / "unpacked").iterdir())) == 1


@pytest.mark.parametrize(
    ("content", "reason"), [(b"this is no archive", "both.zip"), (None, "no models in this archive")]
)
def test_an_archive_without_models_is_a_model_with_a_reason(folder: Path, content: bytes | None, reason: str) -> None:
    if content is None:
        with zipfile.ZipFile(folder / "both.zip", "w") as archive:
            archive.writestr("readme.txt", "nothing here")
    else:
        (folder / "both.zip").write_bytes(content)
    zoo = zoo_of(folder, [{"path": "both.zip"}, {"path": "one/model.onnx"}])
    broken, good = items(zoo, folder / "home")
    assert (broken.name, good.name) == ("both", "one")
    assert reason in broken.reason
    assert "InputError" not in broken.reason


def test_an_empty_remote_folder_is_a_model_with_a_reason(folder: Path) -> None:
    (folder / "empty").mkdir()
    zoo = zoo_of(folder, [{"path": f"file://{folder}/empty/"}, {"path": "one/model.onnx"}])
    assert "no models there" in items(zoo, folder / "home")[0].reason


def item_of(zoo: ZooSpec) -> ZooItem:
    entry = zoo.entries()[0]
    return ZooItem(entry.name, entry.path, entry)


def test_the_dag_of_a_model_overrides_the_given_one_and_that_the_zoos(folder: Path) -> None:
    for name in ("own", "given"):
        (folder / f"{name}.yaml").write_text(DAG.replace("small", name))
    model = {"path": "one/model.onnx"}
    given = str(folder / "given.yaml")
    own = zoo_of(folder, [{**model, "dag": "own.yaml"}])
    assert dag_of(own, item_of(own), given).name == "own"
    plain = zoo_of(folder, [model])
    assert dag_of(plain, item_of(plain), given).name == "given"
    assert dag_of(plain, item_of(plain), None).name == "small"


def test_objectives_of_a_model_override_those_of_the_zoo(folder: Path) -> None:
    size, latency = [{"metric": "size"}], [{"metric": "latency_p50"}]
    zoo = zoo_of(folder, [{"path": "one/model.onnx", "objectives": size}], objectives=latency)
    assert [one.metric for one in dag_of(zoo, item_of(zoo), None).objectives or ()] == ["size"]
    zoo = zoo_of(folder, [{"path": "one/model.onnx"}], objectives=latency)
    assert [one.metric for one in dag_of(zoo, item_of(zoo), None).objectives or ()] == ["latency_p50"]


def test_evaluation_data_of_a_model_replace_all_data_below_them(folder: Path) -> None:
    below = "data: {evaluation: dag.npz, calibration: dag_calibration.npz}\n"
    (folder / "dag.yaml").write_text(DAG + below)

    def data_of(**fields: Any) -> dict[str, str]:
        zoo = zoo_of(folder, [{"path": "one/model.onnx", **fields}])
        data = dag_of(zoo, item_of(zoo), None).data
        named = {"evaluation": data.evaluation, "calibration": data.calibration}
        return {which: Path(str(path)).stem for which, path in named.items() if path is not None}

    assert data_of() == {"evaluation": "dag", "calibration": "dag_calibration"}
    assert data_of(data="own.npz") == {"evaluation": "own"}
    assert data_of(data={"calibration": "own.npz"}) == {"evaluation": "dag", "calibration": "own"}
    both = {"evaluation": "own.npz", "calibration": "other.npz"}
    assert data_of(data=both) == {"evaluation": "own", "calibration": "other"}


def test_a_missing_dag_is_named_with_its_place(folder: Path) -> None:
    zoo = zoo_of(folder, [{"path": "one/model.onnx", "dag": "nowhere.yaml"}])
    with pytest.raises(ConfigError, match=r"models\[0\]\.dag: no such file: nowhere\.yaml"):
        dag_of(zoo, item_of(zoo), None)


def test_without_a_dag_the_zoo_states_what_a_proposal_needs(folder: Path) -> None:
    limit = {"metric": "accuracy", "max_drop": 0.02}
    model = {"path": "one/model.onnx", "constraints": [limit], "data": {"calibration": "own.npz"}}
    zoo = zoo_of(folder, [model], dag=None, data="data.npz", objectives=["size"])
    bare = dag_of(zoo, item_of(zoo), None)
    assert isinstance(bare, BareModel)
    stems = {which: path and Path(str(path)).name for which, path in bare.data.items()}
    assert stems == {"evaluation": "data.npz", "calibration": "own.npz", "latency": None}
    assert bare.goal.objectives == (Objective("size", "minimize"),)
    assert bare.goal.constraints == (Constraint("accuracy", max_drop=0.02),)
    assert not isinstance(dag_of(zoo, item_of(zoo), str(folder / "dag.yaml")), BareModel)  # --dag


def test_data_for_latency_need_a_dag(folder: Path) -> None:
    zoo = zoo_of(folder, [{"path": "one/model.onnx"}], dag=None, data={"latency": "data.npz"})
    with pytest.raises(ConfigError, match="data for latency need a DAG; write dag: in the file"):
        dag_of(zoo, item_of(zoo), None)


def test_all_that_is_missing_is_told_at_once(folder: Path) -> None:
    zoo_of(folder, [{"path": "nowhere.onnx", "data": {"evaluation": "nowhere.npz"}}], dag="nowhere.yaml")
    with pytest.raises(ConfigError) as caught:
        check_zoo(folder / "zoo.json")
    missing = [error.what for error in (caught.value, *caught.value.others)]
    assert missing == ["no such file: nowhere.npz", "no such file: nowhere.onnx"]
    zoo_of(folder, [{"path": "one/model.onnx", "data": {"evaluation": "nowhere.npz"}}], dag="nowhere.yaml")
    with pytest.raises(ConfigError) as caught:
        check_zoo(folder / "zoo.json")
    missing = [error.what for error in (caught.value, *caught.value.others)]
    assert sorted(missing) == ["no such file: nowhere.npz", "no such file: nowhere.yaml"]


def test_a_dag_in_place_of_a_model_keeps_its_own_fields(folder: Path) -> None:
    own = "model: {a: one/model.onnx, b: two/model.onnx}\nobjectives: [{metric: size}]\n"
    (folder / "both.yaml").write_text(DAG + own)
    fields: dict[str, Any] = {"objectives": [{"metric": "latency_p50"}]}
    zoo = zoo_of(folder, ["one/model.onnx", "both.yaml"], **fields)
    check_zoo(zoo)
    single, both = items(zoo, folder)
    assert (both.name, set(dag_of(zoo, both, None).parts)) == ("both", {"a", "b"})
    assert [one.metric for one in dag_of(zoo, both, "given.yaml").objectives] == ["size"]
    assert [one.metric for one in dag_of(zoo, single, None).objectives] == ["latency_p50"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("dag.yaml", "model: is missing; a DAG that a zoo lists names its model"),
        ({"path": "dag.yaml", "dag": "dag.yaml"}, "dag: is for models, and path is a DAG already"),
    ],
)
def test_a_wrong_dag_in_place_of_a_model_is_named(folder: Path, line: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_zoo(zoo_of(folder, [line]))


@pytest.mark.parametrize("with_dag", [True, False])
def test_unknown_metrics_are_told_with_their_lines_before_anything_starts(folder: Path, *, with_dag: bool) -> None:
    dag = "dag: dag.yaml\n" if with_dag else ""
    lines = [
        f"name: z\n{dag}constraints:",
        "  - {metric: acuracy, max_drop: 0.01}",
        "models:",
        "  - path: one/model.onnx",
        "  - path: two/model.onnx",
        "    objectives: [latency_p5]",
    ]
    (folder / "zoo.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError) as caught:
        check_zoo(folder / "zoo.yaml")
    first = 4 if with_dag else 3
    told = [str(error) for error in (caught.value, *caught.value.others)]
    assert len(told) == 2
    assert f"zoo.yaml:{first}: constraints[0].metric: unknown metric 'acuracy'; did you mean 'accuracy'?" in told[0]
    assert f"zoo.yaml:{first + 4}: models[1].objectives[0].metric: unknown metric 'latency_p5'" in told[1]


def test_metrics_of_a_user_script_are_left_to_planning(folder: Path) -> None:
    (folder / "script.py").write_text("")
    (folder / "dag.yaml").write_text(f"{DAG}user_script: script.py\n")
    check_zoo(zoo_of(folder, [{"path": "one/model.onnx"}], objectives=["cost"]))
