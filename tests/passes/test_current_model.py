"""The input model that a worker keeps from one call to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
from micro_models import MODELS
from onnx import ModelProto

from autoopt.memory import data_size, memory_cap
from autoopt.model import io, splitting
from autoopt.model.lazy_imports import ir
from autoopt.model.split import FOLDER
from autoopt.passes.base import Pass, Refused, SourceFile
from autoopt.passes.execution.current_model import CurrentModel, opened, refuse_too_large


def test_the_next_call_on_the_same_file_takes_the_model_over(tmp_path: Path) -> None:
    path = io.save(MODELS["mlp"](), tmp_path)
    with opened(path, "data") as first:
        loaded = first.model
    with opened(path, "data") as second:
        assert second.model is loaded


def test_a_changed_file_or_other_data_are_read_anew(tmp_path: Path) -> None:
    path = io.save(MODELS["mlp"](), tmp_path)
    with opened(path, "data") as first:
        loaded = first.model
    with opened(path, "other data") as second:
        assert second.model is not loaded
    io.save(MODELS["relu_only"](), tmp_path)
    with opened(path, "other data") as third:
        assert third.model == MODELS["relu_only"]()


def test_a_call_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = io.save(MODELS["mlp"](), tmp_path)
    call = opened(path, "")
    loaded = call.__enter__().model
    assert not call.__exit__(RuntimeError, RuntimeError(), None)
    with opened(path, "") as second:
        assert second.model is not loaded


def test_a_model_computes_like_its_copy_only(tmp_path: Path) -> None:
    path = io.save(MODELS["mlp"](), tmp_path)
    other_weights = MODELS["mlp"]()
    weights = other_weights.graph.initializer[0]
    weights.raw_data = bytes(len(weights.raw_data))
    with opened(path, "") as current:
        assert current.computes_like(MODELS["mlp"](), ())
        assert not current.computes_like(other_weights, ())
        assert not current.computes_like(MODELS["relu_only"](), ())


@pytest.mark.parametrize("is_small", [True, False])
def test_a_pass_gets_the_only_copy_of_a_model_that_is_not_small(is_small: bool, tmp_path: Path) -> None:
    current = CurrentModel(io.save(MODELS["mlp"](), tmp_path), is_small=is_small)
    original = current.model
    copy = current.copy()
    copy.graph.name = "changed"
    assert (current.loaded is original) == is_small
    assert current.model.graph.name != "changed"


def test_a_model_in_ort_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.ort").write_bytes(b"ort")
    with opened(tmp_path / "model.ort", "") as current, pytest.raises(Refused, match="ORT format"):
        _ = current.model


def test_a_pass_that_takes_an_ir_model_of_a_split_one_gets_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", 0)
    monkeypatch.setattr(splitting, "LEAST_WEIGHT", 16)
    monkeypatch.setattr(splitting, "LARGEST_GRAPH_SHARE", 1)
    graph = splitting.save_split(MODELS["mlp"](), tmp_path / FOLDER)
    current = CurrentModel(graph, is_small=True)
    current.model.graph.name = "with weights"
    assert any(io.external_tensors(current.copy(lazy=True)))
    assert not any(io.external_tensors(current.copy()))


MIB = 1 << 20


class Hungry(Pass):
    def run(self, model: ModelProto) -> None: ...


class Frugal(Pass):
    def run(self, model: ir.Model) -> None: ...


class Maker(Pass):
    def run(self, model: SourceFile) -> ModelProto: ...


@pytest.fixture
def large(tmp_path: Path) -> CurrentModel:
    """A model with 200 MB of external data, which is a hole in the file."""
    path = io.save(MODELS["mlp"](), tmp_path)
    with path.with_name("weights").open("wb") as file:
        file.truncate(200_000_000)
    return CurrentModel(path)


def test_a_model_that_needs_more_than_is_free_is_refused_with_figures(large: CurrentModel) -> None:
    with memory_cap(data_size() + 1000 * MIB), pytest.raises(Refused) as refusal:
        refuse_too_large(Hungry(), large)
    assert "too large for the memory of this worker: a model of 0.2 GB needs about 1.3 GB" in str(refusal.value)
    assert "limits.memory" in str(refusal.value)


@pytest.mark.parametrize(
    ("pass_", "is_loaded", "mib"), [(Hungry(), False, 1500), (Hungry(), True, 1200), (Frugal(), False, 900)]
)
def test_a_model_that_fits_is_taken(pass_: Pass, is_loaded: bool, mib: int, large: CurrentModel) -> None:
    """One that is loaded is not counted twice, and a pass that loads no weights needs less."""
    if is_loaded:
        large.loaded = MODELS["mlp"]()
    with memory_cap(data_size() + mib * MIB):
        refuse_too_large(pass_, large)


def test_small_models_and_other_sources_are_not_estimated(large: CurrentModel, tmp_path: Path) -> None:
    small = CurrentModel(io.save(MODELS["mlp"](), tmp_path / "small"))
    with memory_cap(data_size() + 1 * MIB):
        refuse_too_large(Hungry(), small)
        refuse_too_large(Maker(), large)
