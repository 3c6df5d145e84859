"""Split models: the same files come out of them, and equal weights are stored once."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autoopt.model import io
from autoopt.model.files import MODEL, bytes_in, digest_folder, files_in
from autoopt.model.model_file import size_of
from autoopt.model.session import make_plain_session, make_session
from autoopt.model.split import splitting
from autoopt.model.split.splitting import Changed, publish, split_folder
from autoopt.model.split.stored import (
    FOLDER,
    as_deployed,
    came_with_external_data,
    digest_files,
    is_split,
    sizes_of,
    weights_of,
    write_files,
)
from autoopt.model.tensors import tensors
from autoopt.model.weight_files import WeightFiles

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


def in_a_body_and_outside(model: ModelProto) -> ModelProto:
    """The first weight lies outside of the branches that use it."""
    outer = model.graph.initializer.pop(0)
    model = in_a_body(model)
    model.graph.initializer.append(outer)
    return model


def in_a_function(model: ModelProto) -> ModelProto:
    nodes = in_constants(model).graph.node
    opsets = [*model.opset_import, helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Layers", ["x"], [model.graph.output[0].name], nodes, opsets)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])]
    call = helper.make_node("Layers", ["x"], ["y"], domain="local")
    graph = helper.make_graph([call], "call", model.graph.input, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[function])


PLACES = [
    in_initializers,
    in_constants,
    in_both,
    in_a_body,
    in_constants_of_a_body,
    in_a_body_and_outside,
    in_a_function,
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("save", FORMS)
def test_the_files_come_out_as_they_went_in(save: object, place: object, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    save(place(layers()), source)  # type: ignore[operator]
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


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("save", FORMS)
def test_every_reader_takes_a_split_model(save: object, place: object, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    save(place(layers()), source)  # type: ignore[operator]
    graph = split(source, tmp_path)
    onnx.checker.check_model(str(graph), full_check=True)
    expected = outputs(make_session(source / MODEL))
    np.testing.assert_array_equal(outputs(make_plain_session(graph)), outputs(make_plain_session(source / MODEL)))
    np.testing.assert_array_equal(outputs(make_session(graph)), expected)
    assert io.load(graph) == io.load(source / MODEL)
    for tensor, other in zip(tensors(onnx.load(graph)), tensors(io.load(source / MODEL)), strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(other))


def test_attributes_have_their_weights_for_passes_that_take_references(tmp_path: Path) -> None:
    graph = split(io.save(in_both(layers()), tmp_path / "source").parent, tmp_path)
    model = io.load_own_weights(graph)
    assert len(io.external_locations(model)) == LAYERS - 1
    constant = numpy_helper.to_array(model.graph.node[0].attribute[0].t)
    np.testing.assert_array_equal(constant, numpy_helper.to_array(layers().graph.initializer[0]))


@pytest.mark.parametrize("place", PLACES)
def test_equal_weights_are_stored_once(place: object, tmp_path: Path) -> None:
    first, second = split(io.save(layers(), tmp_path / "a").parent, tmp_path), tmp_path / "b"
    before = bytes_in(tmp_path / FOLDER)
    assert before < bytes_in(tmp_path / "a") + 4096
    io.save(place(layers("renamed_")), second)  # type: ignore[operator]
    renamed = split(second, tmp_path)
    assert bytes_in(tmp_path / FOLDER) - before == renamed.stat().st_size < WEIGHT
    assert weights_of(renamed) == weights_of(first)
    assert len(weights_of(first)) == LAYERS


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("external", [False, True])
def test_a_model_in_memory_is_split_as_its_file_would_be(
    external: bool, place: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if external:
        monkeypatch.setattr(io, "EXTERNAL_ABOVE", WEIGHT)
    model = place(layers())  # type: ignore[operator]
    source = io.save(model, tmp_path / "source").parent
    new = io.save_split(model, tmp_path / FOLDER)
    assert new is not None
    assert digest_files(new) == digest_folder(source)
    graph = publish(new, digest_folder(source))
    assert sum(sizes_of(graph).values()) == bytes_in(source)
    from_file = split(source, tmp_path / "other")
    assert graph.read_bytes() == from_file.read_bytes()


@pytest.mark.parametrize("external", [False, True])
def test_weights_that_a_model_refers_to_are_not_digested_again(
    external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "source"
    io.save(layers(), folder, external=external)
    graph = split(folder, tmp_path)
    outline = io.parse(graph)
    outline.graph.name = "renamed"
    digested: list[int] = []
    add = WeightFiles.add

    def recorded(files: WeightFiles, *args: object, **options: object) -> object:
        digested.append(1)
        return add(files, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(WeightFiles, "add", recorded)
    new = io.save_split(outline, tmp_path / FOLDER)
    assert new is not None
    assert digested == []
    expected = layers()
    expected.graph.name = "renamed"
    assert digest_files(new) == digest_folder(io.save(expected, tmp_path / "whole").parent)
    assert weights_of(new) == weights_of(graph)


def test_a_split_model_is_measured_as_one_file(tmp_path: Path) -> None:
    source = io.save(layers(), tmp_path / "source")
    with as_deployed(split(source.parent, tmp_path)) as file:
        assert file.read_bytes() == source.read_bytes()
    with as_deployed(source) as file:
        assert file == source


def test_a_split_model_that_nobody_times_runs_as_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = split(io.save(layers(), tmp_path / "source").parent, tmp_path)
    feed = {"x": np.ones((2, WIDTH), np.float32)}
    (timed,) = make_session(graph).run(None, feed)

    def refuse(_: str) -> int:
        raise OSError("a copy of the model in memory")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(OSError, match="a copy"):
        make_session(graph)
    (untimed,) = make_session(graph, timed=False).run(None, feed)
    np.testing.assert_array_equal(untimed, timed)


def test_files_that_change_leave_only_weights(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with_packed_data(layers(), source)
    with pytest.raises(Changed):
        split_folder(source, tmp_path / FOLDER, "0" * 64)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["weights"]


def with_sparse_weights(model: ModelProto) -> ModelProto:
    values = numpy_helper.from_array(np.ones(LAYERS * WIDTH, np.float32), "sparse")
    indices = numpy_helper.from_array(np.arange(LAYERS * WIDTH), "indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [LAYERS * WIDTH]))
    return model


def nested(model: ModelProto, depth: int) -> ModelProto:
    for _ in range(depth):
        model = in_a_body(model)
        model.graph.node[0].attribute.pop()
    return model


def with_two_values(model: ModelProto) -> ModelProto:
    model.graph.initializer[0].data_location = TensorProto.DEFAULT
    return model


def test_unusual_models_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = io.save(with_sparse_weights(layers()), tmp_path / "sparse", external=True).parent
    assert split_folder(source, tmp_path / "split") is None, "some external data are no weights that can be split off"
    with_packed_data(layers(), source)
    (source / "weights.bin").open("ab").write(b"more")
    assert split_folder(source, tmp_path / "split") is None, "there is something behind the weights"
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", 1 << 30)
    assert split_folder(io.save(layers(), tmp_path / "small").parent, tmp_path / "split") is None


def test_bodies_within_bodies_are_split(tmp_path: Path) -> None:
    content = nested(layers(), 20).SerializeToString(deterministic=True)
    draft = splitting.split({MODEL: content}, tmp_path / FOLDER)
    assert draft is not None
    assert len(weights_of(draft)) == LAYERS
    assert digest_files(draft) == hashlib.sha256(content).hexdigest()


def test_a_tensor_that_names_its_place_stays_in_the_graph(tmp_path: Path) -> None:
    graph = split(io.save(with_two_values(layers()), tmp_path / "source").parent, tmp_path)
    assert len(weights_of(graph)) == LAYERS - 1


@given(place=st.sampled_from(PLACES), seed=st.integers(0, 10**6), changes=st.integers(1, 3))
def test_damaged_bytes_are_kept_or_left_alone(
    place: Callable[[ModelProto], ModelProto], seed: int, changes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    content = bytearray(place(layers()).SerializeToString(deterministic=True))
    for _ in range(changes):
        content[rng.randrange(len(content)) if rng.random() < 0.5 else rng.randrange(300)] = rng.randrange(256)
    folder = tmp_path_factory.mktemp("damaged") / FOLDER
    draft = splitting.split({MODEL: bytes(content)}, folder)
    if draft is not None:
        assert digest_files(draft) == hashlib.sha256(content).hexdigest()
