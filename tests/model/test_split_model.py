"""Split models: the same files come out of them, and equal weights are stored once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autoopt.model import io, splitting
from autoopt.model.files import MODEL, bytes_in, digest_folder, files_in
from autoopt.model.model_file import size_of
from autoopt.model.session import make_plain_session, make_session
from autoopt.model.split import (
    FOLDER,
    Damaged,
    WeightFiles,
    as_deployed,
    came_with_external_data,
    digest_files,
    is_split,
    location_of,
    sizes_of,
    weights_of,
    write_files,
)
from autoopt.model.splitting import publish, save_split, split_elsewhere, split_folder
from autoopt.model.tensors import tensors

Place: TypeAlias = Callable[[ModelProto], ModelProto]
Save: TypeAlias = Callable[[ModelProto, Path], object]
WIDTH = 64
LAYERS = 4
WEIGHT = WIDTH * WIDTH * 4


@pytest.fixture(autouse=True)
def splits_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", WEIGHT)


def layers(prefix: str = "", seed: int = 0) -> ModelProto:
    """Matrix products with biases that are too small to leave the graph."""
    rng = np.random.default_rng(seed)
    nodes, weights, name = [], [], "x"
    for layer in range(LAYERS):
        weights.append(numpy_helper.from_array(rng.standard_normal((WIDTH, WIDTH), np.float32), f"w{layer}"))
        weights.append(numpy_helper.from_array(rng.standard_normal(WIDTH).astype(np.float32), f"b{layer}"))
        nodes.append(helper.make_node("Gemm", [name, f"w{layer}", f"b{layer}"], [f"{prefix}y{layer}"]))
        name = f"{prefix}y{layer}"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH])]
    graph = helper.make_graph(nodes, "layers", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def with_one_file_of_data(model: ModelProto, folder: Path) -> None:
    io.save(model, folder, external=True)


def with_packed_data(model: ModelProto, folder: Path) -> None:
    """As onnx itself saves it, without gaps."""
    onnx.save(
        model,
        folder / MODEL,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
        convert_attribute=True,
    )


def with_many_files_of_data(model: ModelProto, folder: Path) -> None:
    onnx.save(
        model,
        folder / MODEL,
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        size_threshold=0,
        convert_attribute=True,
    )


FORMS = [io.save, with_one_file_of_data, with_packed_data, with_many_files_of_data]


def split(source: Path, home: Path) -> Path:
    graph = split_folder(source, home / FOLDER, digest_folder(source))
    assert graph is not None
    return graph


def outputs(session: ort.InferenceSession) -> np.ndarray:
    feeds = {"x": np.ones((2, WIDTH), np.float32), "yes": np.array(True)}
    array: np.ndarray = session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()})[0]
    return array


def in_initializers(model: ModelProto) -> ModelProto:
    return model


def in_constants(model: ModelProto) -> ModelProto:
    for tensor in model.graph.initializer:
        model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    del model.graph.initializer[:]
    return model


def in_both(model: ModelProto) -> ModelProto:
    tensor = model.graph.initializer.pop(0)
    model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    return model


def in_a_body(model: ModelProto) -> ModelProto:
    """A model whose operators and weights are those of a branch."""
    body = helper.make_graph(model.graph.node, "body", [], model.graph.output, model.graph.initializer)
    inputs = [*model.graph.input, helper.make_tensor_value_info("yes", TensorProto.BOOL, [])]
    nodes = [helper.make_node("If", ["yes"], ["y"], then_branch=body, else_branch=body)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])]
    graph = helper.make_graph(nodes, "branches", inputs, outputs)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=9)


def in_constants_of_a_body(model: ModelProto) -> ModelProto:
    return in_a_body(in_constants(model))


def in_a_function(model: ModelProto) -> ModelProto:
    nodes = in_constants(model).graph.node
    opsets = [*model.opset_import, helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Layers", ["x"], [model.graph.output[0].name], nodes, opsets)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])]
    call = helper.make_node("Layers", ["x"], ["y"], domain="local")
    graph = helper.make_graph([call], "call", model.graph.input, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[function])


PLACES = [in_initializers, in_both, in_constants, in_a_body, in_constants_of_a_body, in_a_function]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("save", FORMS)
def test_every_reader_takes_a_split_model_and_its_files_come_out_again(
    save: Save, place: Place, tmp_path: Path
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    save(place(layers()), source)
    graph = split(source, tmp_path)
    assert is_split(graph)
    assert not is_split(source / MODEL)
    assert digest_files(graph) == digest_folder(source)
    write_files(graph, copy)
    assert {name: file.read_bytes() for name, file in files_in(copy).items()} == {
        name: file.read_bytes() for name, file in files_in(source).items()
    }
    assert sizes_of(graph) == {name: file.stat().st_size for name, file in files_in(source).items()}
    assert sum(size_of(str(graph)).values()) == bytes_in(source)
    assert came_with_external_data(graph) == (save is not io.save)
    onnx.checker.check_model(str(graph), full_check=True)
    np.testing.assert_array_equal(outputs(make_plain_session(graph)), outputs(make_plain_session(source / MODEL)))
    np.testing.assert_array_equal(outputs(make_session(graph)), outputs(make_session(source / MODEL)))
    assert io.load(graph) == io.load(source / MODEL)
    for tensor, other in zip(tensors(onnx.load(graph)), tensors(io.load(source / MODEL)), strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(other))


def test_attributes_have_their_weights_for_passes_that_take_references(tmp_path: Path) -> None:
    graph = split(io.save(in_both(layers()), tmp_path / "source").parent, tmp_path)
    model = io.parse(graph)
    assert len(io.external_locations(model)) == LAYERS - 1
    constant = numpy_helper.to_array(model.graph.node[0].attribute[0].t)
    np.testing.assert_array_equal(constant, numpy_helper.to_array(layers().graph.initializer[0]))


@pytest.mark.parametrize(
    ("save", "place"), [*((save, in_initializers) for save in FORMS), *((io.save, place) for place in PLACES[1:])]
)
def test_equal_weights_are_stored_once(save: Save, place: Place, tmp_path: Path) -> None:
    first = split(io.save(layers(), tmp_path / "a").parent, tmp_path)
    before = bytes_in(tmp_path / FOLDER)
    assert before < bytes_in(tmp_path / "a") + 8192
    (tmp_path / "b").mkdir()
    save(place(layers("renamed_")), tmp_path / "b")
    renamed = split(tmp_path / "b", tmp_path)
    assert bytes_in(tmp_path / FOLDER) - before < WEIGHT
    assert len(weights_of(renamed).keys() & weights_of(first).keys()) == LAYERS


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("external", [False, True])
def test_a_model_in_memory_is_split_as_its_file_would_be(
    external: bool, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if external:
        monkeypatch.setattr(io, "EXTERNAL_ABOVE", WEIGHT)
    model = place(layers())
    source = io.save(model, tmp_path / "source").parent
    new = save_split(model, tmp_path / FOLDER)
    assert new is not None
    assert digest_files(new) == digest_folder(source)
    graph = publish(new, digest_folder(source))
    assert sum(sizes_of(graph).values()) == bytes_in(source)
    from_file = split(source, tmp_path / "other")
    assert graph.read_bytes() == from_file.read_bytes()


@pytest.mark.parametrize("is_raw", [True, False])
def test_a_small_tensor_with_a_name_like_a_reference_keeps_its_values(is_raw: bool, tmp_path: Path) -> None:
    model = layers()
    for tensor in model.graph.initializer:
        if tensor.name == "b0":
            values = numpy_helper.to_array(tensor)
            named = numpy_helper.from_array(values, "layer0/weights/bias")
            if not is_raw:
                named = helper.make_tensor(named.name, TensorProto.FLOAT, values.shape, values.tolist())
            tensor.CopyFrom(named)
    model.graph.node[0].input[2] = "layer0/weights/bias"
    (tmp_path / FOLDER).mkdir()
    graph = save_split(model, tmp_path / FOLDER)
    assert graph is not None
    write_files(graph, tmp_path / "own")
    assert (tmp_path / "own" / MODEL).read_bytes() == model.SerializeToString(deterministic=True)


@pytest.mark.parametrize("is_external", [True, False])
def test_a_location_like_that_of_a_stored_weight_says_nothing_of_the_values(is_external: bool, tmp_path: Path) -> None:
    """A weight of another content is stored already at the place that the user's file names."""
    stored = split(io.save(layers(), tmp_path / "stored").parent, tmp_path)
    location = location_of(next(digest for digest, size in weights_of(stored).items() if size == WEIGHT))
    source, model = tmp_path / "source", layers(seed=1)
    values = model.graph.initializer[0].raw_data
    io.save(model, source, external=True)
    changed = io.parse(source / MODEL)
    weight = changed.graph.initializer[0]
    del weight.external_data[:]
    weight.external_data.add(key="location", value=location)
    if is_external:
        (source / location).parent.mkdir(parents=True)
        (source / location).write_bytes(values)
    else:
        weight.raw_data, weight.data_location = values, weight.DEFAULT
    (source / MODEL).write_bytes(changed.SerializeToString(deterministic=True))
    graph = split(source, tmp_path)
    assert digest_files(graph) == digest_folder(source)
    np.testing.assert_array_equal(outputs(make_plain_session(graph)), outputs(make_plain_session(source / MODEL)))


def test_a_split_model_is_measured_as_one_file(tmp_path: Path) -> None:
    source = io.save(layers(), tmp_path / "source")
    with as_deployed(split(source.parent, tmp_path)) as file:
        assert file.read_bytes() == source.read_bytes()
    with as_deployed(source) as file:
        assert file == source


def test_files_that_change_leave_only_weights(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with_packed_data(layers(), source)
    assert split_folder(source, tmp_path / FOLDER, "0" * 64) is None
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["weights"]


def with_more_behind(model: ModelProto, folder: Path) -> None:
    with_packed_data(model, folder)
    with (folder / "weights.bin").open("ab") as file:
        file.write(b"more")


def with_shared_bytes(model: ModelProto, folder: Path) -> None:
    """The second weight begins within the first one."""
    with_packed_data(model, folder)
    changed = onnx.load(folder / MODEL, load_external_data=False)
    offset = next(entry for entry in changed.graph.initializer[2].external_data if entry.key == "offset")
    offset.value = "64"
    (folder / MODEL).write_bytes(changed.SerializeToString())


@pytest.mark.parametrize("save", [with_more_behind, with_shared_bytes])
def test_unusual_files_come_out_as_they_went_in(save: Save, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    save(layers(), source)
    graph = split(source, tmp_path)
    write_files(graph, tmp_path)
    assert {file.name: (tmp_path / file.name).read_bytes() == file.read_bytes() for file in source.iterdir()} == {
        file.name: True for file in source.iterdir()
    }
    assert io.load(graph) == io.load(source / MODEL)


def test_damage_to_any_file_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with_packed_data(layers(), source)
    graph = split(source, tmp_path)
    weights = WeightFiles(tmp_path / FOLDER)
    for file in (graph, graph.with_suffix(".json"), *map(weights.path, weights_of(graph))):
        content = file.read_bytes()
        file.chmod(0o644)
        file.write_bytes(content[:-20] + bytes(19) + b"7")
        try:
            digest = digest_files(graph)
        except (Damaged, FileNotFoundError):
            digest = ""
        assert digest != digest_folder(source)
        file.write_bytes(content)


def damage(weight: Path) -> None:
    weight.chmod(0o644)
    weight.write_bytes(bytes(weight.stat().st_size))


def test_what_is_damaged_is_written_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with_one_file_of_data(layers(), source)
    graph = split(source, tmp_path)
    for weight in WeightFiles(tmp_path / FOLDER).all():
        damage(weight)
        assert split(source, tmp_path) == graph
        assert digest_files(graph) == digest_folder(source)


def test_a_damaged_weight_that_shares_bytes_is_written_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with_shared_bytes(layers(), source)
    graph = split(source, tmp_path)
    for weight in WeightFiles(tmp_path / FOLDER).all():
        damage(weight)
    assert split(source, tmp_path) == graph
    assert digest_files(graph) == digest_folder(source)


def test_a_file_in_another_order_stays_as_it_is(tmp_path: Path) -> None:
    """As some other program writes it: the version of the format comes last."""
    model, source = layers(), tmp_path / "source"
    version = ModelProto(ir_version=model.ir_version)
    model.ClearField("ir_version")
    source.mkdir()
    (source / MODEL).write_bytes(model.SerializeToString() + version.SerializeToString())
    assert split_folder(source, tmp_path / FOLDER) is None
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["weights"]


def test_a_small_model_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", 1 << 30)
    source = io.save(layers(), tmp_path / "small").parent
    assert split_folder(source, tmp_path / "split", digest_folder(source)) is None


def test_another_process_splits_for_those_who_parse_no_models(tmp_path: Path) -> None:
    made = layers()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((WIDTH, 200_000), np.float32), "w0"))
    source = io.save(made, tmp_path / "source").parent
    graph = split_elsewhere(source, tmp_path / FOLDER, digest_folder(source))
    assert graph is not None
    assert digest_files(graph) == digest_folder(source) == graph.stem
    assert split_elsewhere(source, tmp_path / FOLDER, "0" * 64) is None


def test_a_use_renews_the_time_of_an_old_weight(tmp_path: Path) -> None:
    weights = WeightFiles(tmp_path)
    path = weights.path(weights.add(b"weight").digest)
    os.utime(path, (1, 1))
    weights.add(b"weight")
    assert path.stat().st_mtime > 1
