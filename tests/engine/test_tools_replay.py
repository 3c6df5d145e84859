"""Lost artifacts are made again from their lineage, models from their recipe; wrong recipes are one line, code 2."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

from autoopt.engine.run.package import RECIPE, with_digest
from autoopt.engine.tools.replay import read_recipe, replay, verify_store
from autoopt.errors import InputError
from autoopt.model.files import digest_file
from autoopt.store import open_store

DAG: dict[str, Any] = {
    "passes": {"tidy": {"pass": "simplify"}, "quant": {"pass": "dynamic_quantization"}},
    "chains": [["tidy", "quant"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


def write_recipe(folder: Path, model: Path, step: dict[str, Any], **fields: object) -> Path:
    """A recipe of one pass, as another program might sign it."""
    digest = digest_file(model)
    content = {"recipe": RECIPE, "source": digest, "result": digest, "steps": [step], "environment": {}, **fields}
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps(with_digest(content)))
    return recipe


def test_recipe_makes_the_same_bytes_and_refuses_another_model(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    result = go(DAG, model=mlp_file, out=tmp_path / "out")
    assert result.best is not None
    made = replay(tmp_path / "out" / "recipe.json", mlp_file, tmp_path / "again")
    assert made.same
    assert made.changed == {}
    assert (tmp_path / "again" / "model.onnx").read_bytes() == (tmp_path / "out" / "model.onnx").read_bytes()
    other = write(mlp(seed=5), tmp_path / "other")
    with pytest.raises(InputError, match="is not the model"):
        replay(tmp_path / "out" / "recipe.json", other, tmp_path / "never")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad\.json:1: is not JSON"):
        replay(tmp_path / "bad.json", mlp_file, tmp_path / "never")
    with pytest.raises(InputError, match=r"bad\.json: is a file, not a folder"):
        replay(tmp_path / "out" / "recipe.json", mlp_file, tmp_path / "bad.json")
    with pytest.raises(InputError, match=r"/proc: is not writable"):
        replay(tmp_path / "out" / "recipe.json", mlp_file, Path("/proc/again"))
    with pytest.raises(InputError, match=r"nowhere\.npz: no such data file"):
        replay(tmp_path / "out" / "recipe.json", mlp_file, tmp_path / "never", tmp_path / "nowhere.npz")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"pass": "simplfy", "params": {}}, "unknown pass 'simplfy'; did you mean 'simplify'"),
        ({"pass": "simplify", "params": {"skip_everything": 1}}, "pass 'simplify' has no parameter 'skip_everything'"),
        ({"pass": "dynamic_quantization", "params": {"per_channel": "x"}}, "parameter '.*' of .* must be true or"),
        ({"pass": "static_quantization", "params": {}}, "static_quantization needs calibration data; name them with"),
    ],
)
def test_a_recipe_whose_passes_cannot_run_is_wrong_input(
    step: dict[str, Any], reason: str, mlp_file: Path, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path, mlp_file, step)
    with pytest.raises(InputError, match=rf"recipe\.json[^\n]*: {reason}"):
        replay(recipe, mlp_file, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_calibration_data_that_are_gone_are_wrong_input(mlp_file: Path, tmp_path: Path) -> None:
    calibration = {"path": str(tmp_path / "gone.npz")}
    recipe = write_recipe(tmp_path, mlp_file, {"pass": "static_quantization", "params": {}}, calibration=calibration)
    with pytest.raises(InputError, match=r"gone\.npz: no such data file"):
        replay(recipe, mlp_file, tmp_path / "again")


def test_a_replay_names_the_passes_that_have_changed(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    assert go(DAG, model=mlp_file, out=tmp_path / "out").best is not None
    content = json.loads((tmp_path / "out" / "recipe.json").read_text())
    quantization = content["steps"][-1]
    assert quantization["pass"] == "dynamic_quantization"
    implementation = quantization["implementation"]
    version, runtime = implementation["version"], implementation["libraries"]["onnxruntime"]
    implementation |= {"version": version - 1, "libraries": {**implementation["libraries"], "onnxruntime": "1.0"}}
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(with_digest(content)))
    change = f"version {version - 1}, now {version}; onnxruntime 1.0, now {runtime}"
    assert replay(recipe, mlp_file, tmp_path / "again").changed_passes == {"dynamic_quantization": change}


def test_repair_makes_what_has_a_lineage_and_names_what_has_not(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    result = go(DAG, model=mlp_file)
    assert result.best is not None
    with open_store(home=tmp_path / "home") as store:
        made, source = store.artifacts.path(result.best.artifact), store.artifacts.path(result.baseline.artifact)
    whole = made.read_bytes()
    made.write_bytes(whole[:-7])
    with open_store(home=tmp_path / "home") as store:
        assert not verify_store(store).ok
        repaired = verify_store(store, repair=True)
    assert repaired.ok
    assert [p.digest for p in repaired.problems] == [result.best.artifact]
    assert made.read_bytes() == whole
    source.unlink()
    with open_store(home=tmp_path / "home") as store:
        (problem,) = verify_store(store, repair=True).problems
    assert not problem.repaired
    assert "source model" in problem.reason


def test_a_lost_intermediate_is_made_again_when_it_is_needed(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    go({**DAG, "chains": [["tidy"]], "passes": {"tidy": DAG["passes"]["tidy"]}}, model=mlp_file)
    with open_store(home=tmp_path / "home") as store:
        (trial,) = store.trials.all(store.runs.get("latest").id)
        path = store.artifacts.path(trial.candidate.artifact)
    path.write_bytes(b"lost")
    result = go(DAG, model=mlp_file)
    assert result.trial_counts["ok"] == 1
    assert result.best is not None
    assert json.dumps(result.to_json())


SCRIPT = """\
from onnx import helper
from autoopt import register

@register("mine")
def mine(model):
    name = model.graph.output[0].name
    model.graph.node[-1].output[0] = "inner"
    model.graph.node.append(helper.make_node("Identity", ["inner"], [name]))
    return model
"""


@pytest.fixture
def scripted(go: Any, mlp_file: Path, tmp_path: Path) -> Path:
    """The folder of a finished run with a user script; `out` has its recipe."""
    (tmp_path / "mine.py").write_text(SCRIPT)
    dag = {**DAG, "passes": {"mine": {"pass": "mine"}}, "chains": [["mine"]], "objectives": [{"metric": "size"}]}
    result = go({**dag, "user_script": str(tmp_path / "mine.py")}, model=mlp_file, out=tmp_path / "out")
    assert result.trial_counts["ok"] == 1
    return tmp_path


def recipe_with_script(folder: Path) -> Path:
    """A recipe of the run's pass, as the run would have written it."""
    with open_store(home=folder / "home") as store:
        record = store.runs.get("latest")
        (trial,) = store.trials.all(record.id)
        assert trial.candidate is not None
        steps = [step.to_json() for step in store.lineage.trace(trial.candidate).steps]
        content = json.loads((folder / "out" / "recipe.json").read_text())
        content |= {"steps": steps, "result": trial.candidate.artifact, **record.settings["replay_environment"]}
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps(with_digest(content)))
    return recipe


def test_a_script_runs_only_with_consent_and_as_it_was_recorded(scripted: Path, mlp_file: Path) -> None:
    recipe, again = recipe_with_script(scripted), scripted / "again"
    script = scripted / "mine.py"
    digest = hashlib.sha256(SCRIPT.encode()).hexdigest()
    asks = (
        rf"recipe\.json: runs the user script .*mine\.py \(sha256 {digest}\); read the script, then add --allow-script"
    )
    with pytest.raises(InputError, match=asks):
        replay(recipe, mlp_file, again)
    assert replay(recipe, mlp_file, again, allow_script=True).same
    script.write_text(SCRIPT + "# edited\n")
    with pytest.raises(InputError, match=r"mine\.py: is not the script that was recorded"):
        replay(recipe, mlp_file, again, allow_script=True)
    script.unlink()
    with pytest.raises(InputError, match=r"mine\.py: no such user script"):
        replay(recipe, mlp_file, again, allow_script=True)


def test_a_script_that_loads_calibration_data_needs_consent_too(scripted: Path, mlp_file: Path) -> None:
    recipe = scripted / "recipe.json"
    content = json.loads((scripted / "out" / "recipe.json").read_text())
    loader = {"load_dataset": "mine", "user_script": str(scripted / "mine.py")}
    recipe.write_text(json.dumps(with_digest({**content, "user_script": None, "calibration": loader})))
    with pytest.raises(InputError, match="runs the user script"):
        replay(recipe, mlp_file, scripted / "again")


def test_a_repair_runs_a_script_only_with_consent(scripted: Path) -> None:
    with open_store(home=scripted / "home") as store:
        (trial,) = store.trials.all(store.runs.get("latest").id)
        store.artifacts.path(trial.candidate.artifact).write_bytes(b"lost")
    for allowed, repaired in ((False, False), (True, True)):
        with open_store(home=scripted / "home") as store:
            (problem,) = verify_store(store, repair=True, allow_script=allowed).problems
        assert problem.repaired is repaired
        assert ("add --allow-script" in problem.reason) is not allowed


STEP = {"pass": "simplify", "params": {}}
GOOD = {"recipe": RECIPE, "source": "0" * 64, "result": "f" * 64, "steps": [STEP], "environment": {}}


def test_the_smallest_recipe(tmp_path: Path) -> None:
    recipe, document = read_recipe(written(tmp_path, with_digest(GOOD)))
    assert (recipe.pass_steps[0].pass_name, recipe.session["affinity"]) == ("simplify", [])
    assert document == with_digest(GOOD)
    assert read_recipe(tmp_path)[0] == recipe, "the package that holds it stands for it"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"steps": [{"pass": "evil", "params": {}}]}, "was edited after autoopt wrote it; use the original"),
        ({"digest": 7}, "was edited"),
        ({"recipe": 99}, f"has version 99, newer than {RECIPE}; upgrade autoopt"),
        ({"recipe": "x"}, "is not an autoopt recipe"),
        ({"steps": {}}, "is not an autoopt recipe"),
        ({"steps": ["simplify"]}, r"is not a valid recipe: steps\.0: expected an object"),
        ({"steps": [[]]}, r"steps\.0: expected an object"),
        ({"steps": [{"pass": "simplify"}]}, r"steps\.0: .*'params'"),
        ({"steps": [{"pass": 7, "params": {}}]}, r"steps\.0\.pass: expected str"),
        ({"steps": [{"pass": "simplify", "params": []}]}, r"steps\.0\.params: expected an object"),
        ({"steps": [{**STEP, "output": "../../etc"}]}, r"steps\.0\.output: expected 64 hexadecimal digits"),
        ({"steps": [{**STEP, "output": None}]}, r"steps\.0\.output: expected str"),
        ({"source": None}, "source: expected str"),
        ({"source": "../x"}, "source: expected 64 hexadecimal digits"),
        ({"result": 7}, "result: expected str"),
        ({"user_script": 7}, "user_script: expected str"),
        ({"user_script": "a\0b"}, "user_script: holds the character"),
        ({"data_root": []}, "data_root: expected str"),
        ({"scripts": {"x.py": 1}}, r"scripts\.x\.py: expected str"),
        ({"calibration": [1]}, "calibration: expected"),
        ({"calibration": {"path": 7}}, "calibration: data.path"),
        ({"calibration": {}}, "calibration: data: needs one of"),
        ({"accelerator": {"device": 7}}, r"accelerator\.device: expected str"),
        ({"accelerator": {"isa": 7}}, r"accelerator\.isa: expected a list"),
        ({"target": {"threads": "x"}}, r"target\.threads: expected int"),
        ({"affinity": ["x"]}, r"affinity\.0: expected int"),
        ({"session_options": {"graph_optimization_level": "most"}}, "session_options: "),
        ({"session_options": {"config": 7}}, "session_options: "),
        ({"environment": "x"}, "environment: expected an object"),
        ({"environment": {"libraries": "x"}}, r"environment\.libraries: expected an object"),
    ],
)
def test_a_wrong_recipe_is_one_line(tmp_path: Path, edit: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=rf"^[^\n]*recipe\.json:1: [^\n]*{reason}[^\n]*$"):
        read_recipe(written(tmp_path, {**with_digest(GOOD), **edit}))


def test_a_recipe_cannot_lose_its_digest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was edited"):
        read_recipe(written(tmp_path, {**GOOD, "chain": "another"}))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"recipe\.json:1: is not JSON"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b'{\n"recipe": 1,\n"recipe": 1}', r"recipe\.json:3: duplicate key"),
        (b"[" * 100_000, "nested|deep"),
        (b'{"recipe": NaN}', "is not a JSON number"),
        (b"7", "is not an autoopt recipe"),
        (b" " * (17 << 20), "is larger than 16 MiB"),
    ],
)
def test_what_is_no_recipe_is_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        read_recipe(tmp_path / "recipe.json")


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in ((tmp_path, "no such file"), (tmp_path / "pipe", "not a regular"), (Path("x"), "no such")):
        with pytest.raises(InputError, match=reason):
            read_recipe(path)


def written(folder: Path, document: object) -> Path:
    """A recipe file with this document."""
    file = folder / "recipe.json"
    file.write_text(json.dumps(document))
    return file
