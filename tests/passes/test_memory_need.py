"""The memory that a pass needs, against what the worker may allocate."""

from __future__ import annotations

from pathlib import Path

import pytest
from micro_models import MODELS
from onnx import ModelProto

from autoopt.memory import data_size
from autoopt.model import io
from autoopt.model.lazy_imports import ir
from autoopt.passes.base import Pass, Refused, SourceFile
from autoopt.passes.execution.current_model import CurrentModel
from autoopt.passes.execution.memory_need import refuse_too_large
from autoopt.passes.request import TOO_LARGE
from autoopt.workers.limits import memory_cap

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
    assert str(refusal.value).startswith(f"{TOO_LARGE}: a model of 0.2 GB needs about 1.3 GB")
    assert "limits.memory" in str(refusal.value)


def test_a_model_that_fits_is_taken(large: CurrentModel) -> None:
    with memory_cap(data_size() + 1500 * MIB):
        refuse_too_large(Hungry(), large)


def test_a_model_that_is_loaded_is_not_counted_twice(large: CurrentModel) -> None:
    large.loaded = MODELS["mlp"]()
    with memory_cap(data_size() + 1200 * MIB):
        refuse_too_large(Hungry(), large)


def test_a_pass_that_loads_no_weights_needs_less_unless_the_model_is_kept_in_memory(large: CurrentModel) -> None:
    with memory_cap(data_size() + 900 * MIB):
        refuse_too_large(Frugal(), large)
        large.is_small = True
        with pytest.raises(Refused):
            refuse_too_large(Frugal(), large)


def test_small_models_and_other_sources_are_not_estimated(large: CurrentModel, tmp_path: Path) -> None:
    small = CurrentModel(io.save(MODELS["mlp"](), tmp_path / "small"))
    with memory_cap(data_size() + 1 * MIB):
        refuse_too_large(Hungry(), small)
        refuse_too_large(Maker(), large)
