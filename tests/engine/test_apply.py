"""One pass by name, from Python: models in memory, in and out of a worker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from builders import mlp, write
from limited_files import limited_files
from onnx import parser

import autoopt
from autoopt.engine.tools.apply import PassFailed, apply_pass, copy_out
from autoopt.errors import InputError
from autoopt.model import io
from autoopt.outcome import Outcome

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x) => (float[2, 4] y) { a = Identity (x)\n y = Relu (a) }"""


@pytest.fixture
def model() -> onnx.ModelProto:
    return parser.parse_model(TEXT)


def test_a_model_goes_in_and_another_comes_out(model: onnx.ModelProto) -> None:
    made = autoopt.get_pass("eliminate_identity")(model)
    assert [node.op_type for node in made.graph.node] == ["Relu"]
    assert len(model.graph.node) == 2
    assert autoopt.get_pass("identity_elimination")(made) is made


def test_a_sequence_takes_names_and_passes_with_parameters(model: onnx.ModelProto) -> None:
    made = autoopt.Sequence("name_fix", autoopt.get_pass("simplify", engine="onnxscript"))(model)
    assert [node.op_type for node in made.graph.node] == ["Relu"]


def test_required_passes_run_first(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 4] x) => (float[2, 4] y) { a = Identity (x)\n b = Relu (a)\n c = Neg (b)\n y = Abs (c) }"""
    stage = autoopt.get_pass("split_stages")(parser.parse_model(text))
    assert [node.op_type for node in stage.graph.node] == ["Identity", "Relu"]
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(text), path)
    assert apply_pass("split_stages", path, tmp_path / "work").required == ("name_fix", "shape_inference")


def test_what_is_wrong_is_said_before_anything_runs() -> None:
    with pytest.raises(InputError, match="did you mean 'simplify'"):
        autoopt.get_pass("simplfy")
    with pytest.raises(InputError, match="did you mean 'engine'"):
        autoopt.get_pass("simplify", engin="onnxsim")


def test_a_refusal_is_typed(model: onnx.ModelProto) -> None:
    with pytest.raises(PassFailed, match="loses operators") as caught:
        autoopt.get_pass("opset_conversion", target_opset=13)(model)
    assert caught.value.outcome is Outcome.REFUSED


def test_all_passes_are_known() -> None:
    infos = autoopt.get_registered_passes()
    assert infos["simplify"].parameter("engine").search is not None
    assert all(info.name == name for name, info in infos.items())


def test_a_file_that_is_no_model_is_the_users_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match=r"model\.onnx: not an ONNX model"):
        apply_pass("simplify", path, tmp_path / "work")


@pytest.mark.parametrize("location", ["model.onnx_data", "weights/of.bin"])
def test_external_data_may_have_any_name(location: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "weights").mkdir(parents=True)
    path = tmp_path / "in" / "model.onnx"
    onnx.save(mlp(), path, save_as_external_data=True, location=location, size_threshold=0)
    applied = apply_pass("ort_graph_optimization", path, tmp_path / "work", {"level": "basic"})
    assert applied.step.outcome is Outcome.OK
    applied = apply_pass("checker", path, tmp_path / "checked")
    files = copy_out(applied.model, tmp_path / "out.onnx")
    assert files == [tmp_path / "out.onnx", tmp_path / "out.onnx.data"]
    onnx.checker.check_model(str(tmp_path / "in" / "model.onnx"))
    onnx.checker.check_model(str(tmp_path / "out.onnx"))


def test_results_are_copied_out_without_replacing_others_files(tmp_path: Path) -> None:
    def made(weight: float) -> Path:
        folder = tmp_path / f"made{weight}"
        folder.mkdir()
        model = mlp()
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full((8, 16), weight, np.float32), "w0"))
        onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
        return folder

    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    assert copy_out(made(1.0), first) == [first, tmp_path / "first.onnx.data"]
    assert copy_out(made(2.0), second) == [second, tmp_path / "second.onnx.data"]
    assert copy_out(made(3.0), first, force=True) == [first, tmp_path / "first.onnx.data"]
    (tmp_path / "third.onnx.data").write_bytes(b"of the user")
    with pytest.raises(InputError, match="already exists"):
        copy_out(made(4.0), tmp_path / "third.onnx", force=True)
    with pytest.raises(InputError, match="must be a file"):
        copy_out(made(5.0), tmp_path)
    weights = [io.load(path).graph.initializer[0] for path in (first, second)]
    assert [onnx.numpy_helper.to_array(weight).max() for weight in weights] == [3.0, 2.0]


def test_a_full_disk_leaves_no_part_of_a_model_and_the_last_one_as_it_was(tmp_path: Path) -> None:
    folder, out = tmp_path / "made", tmp_path / "out" / "m.onnx"
    folder.mkdir()
    out.parent.mkdir()
    out.write_bytes(b"last")
    model = mlp(64)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    copy_out(folder, tmp_path / "other.onnx")  # workers start without the limit
    with limited_files(1000), pytest.raises(InputError, match="cannot be written"):
        copy_out(folder, out, force=True)
    assert [(file.name, file.read_bytes()) for file in out.parent.iterdir()] == [("m.onnx", b"last")]


def test_a_pass_without_its_operators_says_which(tmp_path: Path) -> None:
    step = apply_pass("conv_to_rows", write(mlp(), tmp_path / "mlp"), tmp_path / "work").step
    assert (step.outcome, step.message) == (Outcome.UNCHANGED, "needs Conv; the model has none")
    step = apply_pass("common_subexpression_elimination", write(mlp(), tmp_path / "other"), tmp_path / "again").step
    assert (step.outcome, step.message) == (Outcome.UNCHANGED, "nothing to do on this model as it is")
