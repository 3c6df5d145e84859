"""`autoopt init`, `import-olive`, the JSON Schemas, and `plan` and `run` of a bare model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from builders import cnn, mlp, model, tensor, write
from onnx import TensorProto, helper

from autoopt.cli.init import dag_schema, schema_line
from autoopt.settings import settings
from autoopt.spec import load_dag
from autoopt.spec.reader import read_document

Call = Any


@pytest.fixture
def cnn_file(home: Path) -> Path:
    return write(cnn(), home.parent / "net")


@pytest.fixture
def data(home: Path) -> str:
    items = np.random.default_rng(0).standard_normal((16, 1, 8, 8)).astype(np.float32)
    np.savez(home.parent / "items.npz", x=items)
    return "items.npz"


def trees(folder: Path) -> Path:
    """A regressor of one tree with two leaves."""
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        "trees",
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_falsenodeids=[2, 0, 0],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_nodeids=[0, 1, 2],
        nodes_treeids=[0, 0, 0],
        nodes_truenodeids=[1, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        target_ids=[0, 0],
        target_nodeids=[1, 2],
        target_treeids=[0, 0],
        target_weights=[1.0, 2.0],
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", 3)]
    outputs = [tensor("y", ["n", 1], TensorProto.FLOAT)]
    return write(model([node], [tensor("x", ["n", 2])], outputs, {}, opset_imports=opsets), folder)


def test_it_writes_a_dag_that_plans_as_proposed_and_never_over_one(call: Call, cnn_file: Path, data: str) -> None:
    said = call("init", "net/model.onnx", "--data", data, "--set", "level=2", "--json")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    assert document["file"] == "net.yaml"
    assert document["point_count"] < document["points_before"]
    assert {
        "what": "level 2",
        "why": "also lossy passes that need no calibration data, with few values each",
    } in document["decided"]
    text = Path("net.yaml").read_text()
    assert "# int8 static, int8 selective not tried: needs --set level=3" in text
    assert "#   without engine onnxsim: needs --set level=3" in text
    schema_file = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert schema_file == ".autoopt/dag.schema.json"
    jsonschema.validate(read_document("net.yaml").value, json.loads(Path(schema_file).read_text()))
    spec = load_dag("net.yaml")
    assert (spec.model, spec.data.evaluation) == ("net/model.onnx", "items.npz")
    planned = json.loads(call("plan", "net.yaml", "--json").out)
    assert (planned["chain_count"], planned["point_count"]) == (document["chain_count"], document["point_count"])
    Path("net.yaml").write_text("mine")
    again = call("init", "net/model.onnx")
    assert (again.code, again.err) == (2, "net.yaml: already exists; use --force to overwrite it\n")
    assert Path("net.yaml").read_text() == "mine"
    assert call("init", "net/model.onnx", "--force").code == 0
    assert "static_quantization" not in Path("net.yaml").read_text(), "no data: nothing lossy"


def test_another_file_has_paths_relative_to_its_folder(call: Call, cnn_file: Path, data: str) -> None:
    Path("dags").mkdir()
    said = call("init", "net/model.onnx", "--data", data, "-o", "dags/mine.yaml")
    assert said.code == 0, said.err
    assert "wrote dags/mine.yaml" in said.out
    document = read_document("dags/mine.yaml").value
    assert (document["model"], document["data"]["evaluation"]) == ("../net/model.onnx", "../items.npz")
    assert call("plan", "dags/mine.yaml").code == 0
    assert call("init", "net/model.onnx", "-o", "none/mine.yaml").code == 2


def test_it_says_what_it_decided_and_why(call: Call, cnn_file: Path, data: str) -> None:
    said = call("init", "net/model.onnx", "--data", data, "--ep", "cuda", "--precision", "fp16")
    assert said.code == 0, said.err
    assert "not on this machine: CUDAExecutionProvider is not in the installed runtime" in said.out
    assert "fp16: trying half precision, which uses the tensor cores" in said.out
    assert "next: autoopt plan net.yaml; autoopt run net.yaml" in said.out
    assert load_dag("net.yaml").all_targets[0].execution_provider == "CUDAExecutionProvider"


def test_plan_of_a_bare_model_shows_every_cut(call: Call, cnn_file: Path, data: str) -> None:
    data_json = json.loads(call("plan", "net/model.onnx", "--data", data, "--json", "--limit", "500").out)
    assert data_json["dag"] == "net"
    assert data_json["chain_count"] == len(data_json["chains"]) > 10
    assert data_json["points_before"] > data_json["point_count"]
    assert {c["param"] for c in data_json["cut"]} >= {"op_types"}
    assert all(p["rule"] and p["reason"] for p in data_json["pruned"])
    assert data_json["nodes"]["fold"] == "batchnorm_folding"
    chosen = ("plan", "net/model.onnx", "--data", data, "--set", "level=1")
    short, text = call(*chosen).out, call("--verbose", *chosen).out
    assert len(short.splitlines()) <= 15
    assert "decided: level 1: passes that change results at most by rounding" in text
    assert "cut: simplify.engine='onnxsim': needs --set level=3" in text
    assert "static: needs --set level=3 [inspection]" in text


def test_trees_are_not_quantized(call: Call, home: Path) -> None:
    trees(home.parent / "forest")
    said = call("init", "forest/model.onnx", "--set", "fidelity=true", "--json")
    assert said.code == 0, said.err
    assert "quantization" not in "".join(
        line for line in Path("forest.yaml").read_text().split("\n") if "#" not in line
    )
    assert any("trees" in d["why"] for d in json.loads(said.out)["decided"])


MISTAKES = [line.split(" | ") for line in Path(__file__).with_name("mistakes.txt").read_text().splitlines()]


@pytest.mark.parametrize(("arguments", "text"), MISTAKES)
def test_mistakes_are_one_line(call: Call, cnn_file: Path, arguments: str, text: str) -> None:
    Path("d.yaml").write_text("name: d\npasses: {a: simplify}\nchains: [[a]]\n")
    said = call(*arguments.split())
    assert said.code == 2, said.out
    assert said.err.count("\n") == 1
    assert text in said.err


def test_a_written_dag_reads_the_data_and_has_the_goal_that_the_options_say(call: Call, cnn_file: Path) -> None:
    generator = np.random.default_rng(0)
    images, answers = generator.standard_normal((16, 1, 8, 8)).astype(np.float32), generator.integers(0, 4, 16)
    np.savez("items.npz", pixels=images, answer=answers)
    options = ("--data", "items.npz", "--inputs", "pixels", "--label", "answer", "--scale", "0.5")
    goal = ("--minimize", "size", "--metric", "accuracy", "--max-drop", "0.02")
    said = call("init", "net/model.onnx", *options, *goal)
    assert said.code == 0, said.err
    spec = load_dag("net.yaml")
    assert spec.data_json("evaluation") == {
        "path": str(Path("items.npz").absolute()),
        "label_col": "answer",
        "input_cols": ["pixels"],
        "pre_process": {"type": "normalize", "params": {"mean": [0.0], "std": [2.0]}},
    }
    assert spec.constraints is not None
    assert [objective.metric for objective in spec.objectives] == ["size"]
    assert [(limit.metric, limit.max_drop) for limit in spec.constraints] == [("accuracy", 0.02)]
    assert call("plan", "net/model.onnx", *options, *goal, "--calibration", "items.npz").code == 0


def test_run_of_a_bare_model_finds_a_model_and_teaches_the_next_plan(call: Call, home: Path) -> None:
    write(mlp(width=256), home.parent / "first")
    write(mlp(width=256, seed=1), home.parent / "second")
    goal = ("--set", "fidelity=true", "--minimize", "size")
    options = (*goal, "--engine", "inline", "--precision", "int8", "--trials", "2", "-q", "--json")
    said = call("run", "first/model.onnx", *options)
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert result["best"]["passes"]
    assert any(note.startswith("trying ") and "int8 (dynamic" in note for note in result["notes"])
    assert json.loads(call("run", "first/model.onnx", *options).out)["reused"]
    settings.cache_clear()
    taught = json.loads(call("plan", "second/model.onnx", *goal, "--json").out)["learned"]
    assert "of the source's size on first (same graph)" in taught[0]["reason"]


@pytest.mark.zoo
@pytest.mark.parametrize(
    ("name", "offered", "absent"),
    [
        ("cifar10_resnet8", {"static_quantization"}, {"transformer_fusion", "ir_upgrade", "dynamic_quantization"}),
        ("superres_espcn_x3", {"static_quantization"}, {"dynamic_quantization", "weight_only_quantization"}),
        ("basic_pitch", {"pad_folding", "static_quantization"}, {"weight_only_quantization"}),
        ("sms_transformer", {"transformer_fusion", "weight_only_quantization"}, {"pad_folding"}),
        ("mnist_cntk", {"ir_upgrade", "opset_conversion"}, {"transformer_fusion"}),
        ("dtln_stage1", {"opset_conversion", "dynamic_quantization"}, {"pad_folding"}),
        ("tab_diabetes_rf", {"session_tuning"}, {"dynamic_quantization", "static_quantization"}),
    ],
)
def test_real_models_get_what_suits_them(call: Call, name: str, offered: set[str], absent: set[str]) -> None:
    zoo = os.environ.get("AUTOOPT_TEST_ZOO")
    if not zoo:
        pytest.skip("AUTOOPT_TEST_ZOO is not set")
    folder = Path(zoo, name).absolute()
    said = call("init", str(folder / "model.onnx"), "--data", str(folder / "evaluation.npz"))
    assert said.code == 0, said.err
    used = {node.pass_name for node in load_dag(f"{name}.yaml").passes.values()}
    assert offered <= used
    assert not absent & used
    assert json.loads(call("plan", f"{name}.yaml", "--json").out)["chain_count"] >= 2


def test_recurrent_state_that_the_data_show_is_written_with_its_reason(call: Call, home: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "h"], ["sum"]), helper.make_node("Tanh", ["sum"], ["next"])]
    inputs, outputs = [tensor("x", [1, 3]), tensor("h", [1, 3])], [tensor("sum", [1, 3]), tensor("next", [1, 3])]
    file = write(model(nodes, inputs, outputs, {}), home.parent / "cell")
    x = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)
    h = np.full((12, 3), 0.5, np.float32)
    for index in range(11):
        h[index + 1] = np.tanh(x[index] + h[index])
    np.savez(home.parent / "items.npz", x=x, h=h)
    assert call("init", str(file), "--data", "items.npz", "--out", "cell.yaml")[0] == 0
    assert "# Items follow each other: `state` feeds" in Path("cell.yaml").read_text()
    data = load_dag("cell.yaml").data_json("evaluation")
    assert isinstance(data, dict)
    assert (data["state"], data["starts"]) == ({"next": "h"}, [0])


DAGS = Path(__file__).parents[2] / "dags"
LINE = "# yaml-language-server: $schema="


def schema_of(file: Path) -> Any:
    """The schema that the first line of a file names."""
    name = file.read_text().splitlines()[0].removeprefix(LINE)
    return json.loads((file.parent / name).read_text())


def test_the_schema_of_the_shipped_dags_is_up_to_date() -> None:
    shipped = (DAGS / "dag.schema.json").read_text()
    assert shipped == dag_schema(with_passes=False), "run: python scripts/docs/reference.py"


@pytest.mark.parametrize("file", sorted(DAGS.glob("*.yaml")), ids=lambda file: file.name)
def test_the_shipped_dags_name_a_schema_that_they_meet(file: Path) -> None:
    jsonschema.validate(read_document(file).value, schema_of(file))


def test_passes_and_their_parameters_are_described_and_other_passes_are_valid() -> None:
    schema = json.loads(dag_schema())
    short, full = schema["$defs"]["PassNode"]["anyOf"]
    assert {"const": "simplify"}.items() <= short["anyOf"][
        [n.get("const") for n in short["anyOf"]].index("simplify")
    ].items()
    rules = {rule["if"]["properties"]["pass"]["const"]: rule["then"] for rule in full["allOf"]}
    parameters = rules["static_quantization"]["properties"]["params"]["properties"]
    assert "MinMax" in parameters["calibrate_method"]["description"]
    dag = {"name": "d", "passes": {"a": {"pass": "my_own", "params": {"x": 1}}}, "chains": [["a"]]}
    jsonschema.validate(dag, schema)


def test_the_schema_of_zoo_files_is_written_beside(home: Path) -> None:
    assert schema_line() == f"{LINE}.autoopt/dag.schema.json"
    schema = json.loads(Path(".autoopt/zoo.schema.json").read_text())
    jsonschema.validate({"name": "z", "models": ["a.onnx"]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "z", "modles": ["a.onnx"]}, schema)


CONFIG = {
    "input_model": {"type": "OnnxModel", "model_path": "model.onnx"},
    "passes": {"clean": {"type": "OnnxPeepholeOptimizer"}, "q": {"type": "OnnxDynamicQuantization", "lora": 1}},
    "evaluators": {"e": {"metrics": [{"type": "latency", "sub_types": [{"name": "p50", "priority": 1}]}]}},
    "search_strategy": {"sampler": "sequential"},
}


@pytest.fixture
def config(home: Path) -> Path:
    folder = write(mlp(), home.parent / "work").parent
    file = folder / "olive.json"
    file.write_text(json.dumps(CONFIG, indent=1))
    return file


def test_it_writes_a_dag_that_plans_and_says_what_is_missing(call: Call, config: Path) -> None:
    said = call("import-olive", str(config))
    assert (said.code, said.err) == (0, "")
    assert "passes.q.lora: is left out: dynamic_quantization has no such parameter" in said.out
    assert said.out.endswith("wrote olive.yaml; next: autoopt plan olive.yaml\n")
    text = Path("olive.yaml").read_text()
    assert text.startswith(
        "# yaml-language-server: $schema=.autoopt/dag.schema.json\n# Converted from Olive's olive.json."
    )
    planned = json.loads(call("plan", "olive.yaml", "--json").out)
    assert [chain["name"] for chain in planned["chains"]] == ["clean -> q"]
    assert planned["point_count"] > 1
    again = call("import-olive", str(config))
    assert (again.code, again.err) == (2, "olive.yaml: already exists; use --force to overwrite it\n")


def test_json_has_the_dag_and_the_remarks(call: Call, config: Path) -> None:
    document = json.loads(call("import-olive", str(config), "-o", "work/dag.yaml", "--json").out)
    assert document["file"] == "work/dag.yaml"
    assert document["dag"]["model"] == "model.onnx"
    assert document["dag"]["stages"] == ["clean", "q"]
    assert len(document["remarks"]) == 1
    assert call("plan", "work/dag.yaml").code == 0


def test_a_file_that_is_no_configuration_is_one_line(call: Call, home: Path) -> None:
    Path("broken.json").write_text("{")
    said = call("import-olive", "broken.json")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("broken.json:1: is not JSON")
    assert call("import-olive", "none.json").code == 2
