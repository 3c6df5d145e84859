"""The runner: gathering, lineage, retries, analyses, user scripts, parameters."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from micro_models import MODELS

from autoopt.errors import InputError
from autoopt.model import io
from autoopt.model.files import digest_folder
from autoopt.passes.runner import describe, run
from autoopt.registry import info_from_json

SCRIPT = '''
from pathlib import Path
from typing import Annotated
from autoopt import Categorical, Param, Pass, Refused, Retry, register

def log(text):
    with open(Path(__file__).with_name("log"), "a") as file:
        file.write(text + "\\n")

@register("add_note")
def add_note(model, text: Annotated[str, "the note"] = "x"):
    """Leaves a note."""
    model.metadata_props.add(key="note", value=text)
    return model
add_note.touches = ("metadata",)

@register("smaller")
class Smaller(Pass):
    """Halves until it fits."""
    size: Annotated[int, Categorical(64, 32), "size"] = 64
    fits: int = 16
    def run(self, model):
        log(f"smaller {self.size}")
        return Retry("too big", {"size": self.size // 2}) if self.size > self.fits else None

@register("stuck")
class Stuck(Pass):
    """Asks for what it had."""
    def run(self, model):
        return Retry("again", {})

@register("count")
class Count(Pass):
    """Counts nodes."""
    analysis = True
    def run(self, model):
        log("count")
        self.context.reports["count"] = len(model.graph.node)

@register("needs_count")
class NeedsCount(Pass):
    """Uses the count."""
    requires = ("count",)
    note: str = "n"
    touches = ("metadata",)
    def run(self, model):
        model.metadata_props.add(key=self.note, value=str(self.context.reports["count"]))
        return model

@register("breaks")
class Breaks(Pass):
    """Computes something else."""
    tolerance = "equal"
    def run(self, model):
        model.graph.node[0].op_type = "Neg"
        return model

@register("invalid")
class Invalid(Pass):
    """Leaves a graph that is none."""
    def run(self, model):
        model.graph.node[0].input[0] = "nowhere"
        return model

@register("uses")
class Uses(Pass):
    """Calls an object of this script."""
    how: Annotated[object, Param("object")] = None
    def run(self, model):
        return self.how(model)

def chosen(model):
    raise Refused("called the chosen one")
'''


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "user.py"
    path.write_text(SCRIPT)
    return str(path)


def steps(
    tmp_path: Path, model: str, *wanted: str | tuple[str, dict[str, Any]], script: str | None = None, **more: Any
) -> list[dict[str, Any]]:
    path = io.save(MODELS[model](), tmp_path / "source")
    listed = [(w, {}) if isinstance(w, str) else w for w in wanted]
    payload = {
        "model": {"path": str(path), "session_options": {"intra_op_num_threads": 1}},
        "steps": [{"node": f"n{i}", "pass": name, "params": params} for i, (name, params) in enumerate(listed)],
        "output": str(tmp_path / "out"),
        "user_script": script,
        **more,
    }
    result: list[dict[str, Any]] = run(payload)["steps"]
    return result


def test_gathered_steps_leave_what_single_steps_leave(tmp_path: Path) -> None:
    names = ("name_fix", "shape_inference", "constant_folding", "batchnorm_folding")
    gathered = steps(tmp_path / "all", "conv_batchnorm", *names)
    folder, single = tmp_path / "all" / "source", []
    for i, name in enumerate(names):
        one = run({
            "model": {"path": str(folder / "model.onnx")},
            "steps": [{"pass": name}],
            "output": str(tmp_path / f"one{i}"),
        })["steps"][0]  # fmt: skip
        single.append((one["outcome"], one["digest"]))
        folder = Path(one["path"]) if one["path"] else folder
    assert [(s["outcome"], s["digest"]) for s in gathered] == single
    assert [s["outcome"] for s in gathered] == ["ok", "ok", "unchanged", "ok"]


def test_every_changed_step_leaves_its_own_verified_artifact(tmp_path: Path) -> None:
    first, second = steps(tmp_path, "conv_batchnorm", "name_fix", "batchnorm_folding")
    for number, step in enumerate((first, second)):
        folder = Path(step["path"])
        assert folder == tmp_path / "out" / str(number)
        assert step["digest"] == digest_folder(folder)
        assert step["bytes"] == (folder / "model.onnx").stat().st_size
    assert first["digest"] != second["digest"]
    assert second["equivalence"]["status"] == "same"
    assert second["session_options"] == {"intra_op_num_threads": 1}


def test_retries_are_recorded_and_bounded(tmp_path: Path, script: str) -> None:
    (done,) = steps(tmp_path / "a", "relu_only", "smaller", script=script)
    assert done["outcome"] == "unchanged"
    assert done["params"] == {"fits": 16, "size": 16}
    assert [a["params"]["size"] for a in done["attempts"]] == [64, 32]
    assert {a["reason"] for a in done["attempts"]} == {"too big"}
    (given_up,) = steps(tmp_path / "b", "relu_only", ("smaller", {"fits": 1}), script=script)
    assert given_up["outcome"] == "failed"
    assert "gave up after 3 retries" in given_up["message"]
    assert len(given_up["attempts"]) == 4
    (stuck,) = steps(tmp_path / "c", "relu_only", "stuck", script=script)
    assert stuck["outcome"] == "failed"
    assert "parameters that it gave up before" in stuck["message"]


def test_an_analysis_runs_once_per_artifact(tmp_path: Path, script: str) -> None:
    made = steps(
        tmp_path, "mlp", "count", "needs_count", ("needs_count", {"note": "m"}), "count", "count", script=script
    )
    assert [s["outcome"] for s in made] == ["unchanged", "ok", "ok", "unchanged", "unchanged"]
    assert made[0]["reports"] == {"count": 6}
    notes = {e.key: e.value for e in io.load(Path(made[2]["path"], "model.onnx")).metadata_props}
    assert notes == {"n": "6", "m": "6"}
    # of the source, of the first changed model (required by the second pass), and of the second as a step of its own
    assert (tmp_path / "user.py").with_name("log").read_text().count("count") == 4


def test_reports_handed_in_are_reused(tmp_path: Path, script: str) -> None:
    (step,) = steps(tmp_path, "mlp", "needs_count", script=script, reports={"count": 41})
    assert io.load(Path(step["path"], "model.onnx")).metadata_props[0].value == "41"


def test_a_wrong_result_is_a_failure_and_ends_the_chain(tmp_path: Path, script: str) -> None:
    made = steps(tmp_path, "relu_only", "breaks", "name_fix", script=script)
    assert [s["outcome"] for s in made] == ["failed"]
    assert made[0]["message"].startswith("not equivalent to its input: output 0")
    assert made[0]["path"] is None
    assert not (tmp_path / "out" / "0").exists()


def test_an_invalid_result_is_a_failure(tmp_path: Path, script: str) -> None:
    (step,) = steps(tmp_path, "relu_only", "invalid", script=script)
    assert step["outcome"] == "failed"
    assert step["message"].startswith("the checker rejects the new model")


def test_without_checks_the_result_is_taken_as_it_is(tmp_path: Path, script: str) -> None:
    (step,) = steps(tmp_path, "relu_only", "breaks", script=script, check=False)
    assert (step["outcome"], step["equivalence"]) == ("ok", {})


@pytest.mark.parametrize(
    ("name", "params", "reason"),
    [
        ("simplify", {"engin": "onnxsim"}, "did you mean 'engine'?"),
        ("simplify", {"engine": "onnxsmi"}, "did you mean 'onnxsim'?"),
        ("sequence", {}, "needs parameter 'passes'"),
        ("constant_folding", {"input_size_limit": "9"}, "must be int"),
        ("packing_mode", {}, "supports only CUDAExecutionProvider"),
        ("uses", {"how": "absent"}, "the user script has no 'absent'"),
        ("uses", {"how": "chosen"}, "called the chosen one"),
    ],
)
def test_what_a_pass_cannot_take_is_refused(
    tmp_path: Path, script: str, name: str, params: dict[str, Any], reason: str
) -> None:
    (step,) = steps(tmp_path, "relu_only", (name, params), script=script)
    assert step["outcome"] == "refused"
    assert reason in step["message"]


def test_an_unknown_pass_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'simplify'"):
        steps(tmp_path, "relu_only", "simplfy")


def test_an_alias_is_the_pass(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "conv_batchnorm", "fuse_bn_into_conv")
    assert (step["pass"], step["outcome"]) == ("batchnorm_folding", "ok")


def test_a_source_that_the_runtime_refuses_may_be_repaired(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "double_names", "name_fix")
    assert step["outcome"] == "ok"
    assert step["equivalence"]["status"] == "only run"
    assert "same node name" in step["equivalence"]["reason"]


def test_describe_tells_of_the_script(script: str) -> None:
    told = describe({"user_script": script, "accelerator": {"device": "cpu"}})
    infos = {info["name"]: info_from_json(info) for info in told["passes"]}
    assert told["source_digest"] == hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert infos["smaller"].source_digest == told["source_digest"]
    assert infos["smaller"].parameter("size").search is not None
    assert infos["add_note"].summary == "Leaves a note."
    assert infos["simplify"].source_digest == ""
    assert infos["uses"].user_script


def test_a_changed_script_replaces_its_passes_and_others_are_forgotten(tmp_path: Path, script: str) -> None:
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
