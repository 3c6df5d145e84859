"""Quantization parameters by instruction set."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.registry import PassInfo, registry
from autoopt.space import NodeSpace
from autoopt.target import Accelerator

VNNI = frozenset({"avx2", "avx512_vnni"})


def searched(info: PassInfo, **fixed: Any) -> NodeSpace:
    """The space of `params: search` with some values fixed."""
    search = {p.name: p.search for p in info.parameters if p.search is not None and p.name not in fixed}
    return NodeSpace(search=search, fixed=fixed, defaults={p.name: p.default for p in info.parameters})


@pytest.mark.parametrize("name", ["dynamic_quantization", "static_quantization"])
def test_seven_bit_weights_are_searched_only_where_eight_overflow(name: str) -> None:
    def offered(isa: frozenset[str]) -> bool:
        return registry().info(name, Accelerator(isa=isa)).parameter("reduce_range").search is not None

    assert offered(frozenset({"avx2"}))
    assert not offered(VNNI)
    assert not offered(frozenset({"avx2", "amx_int8"}))
    assert not offered(frozenset({"asimd"}))


@pytest.mark.parametrize("name", ["dynamic_quantization", "static_quantization", "selective_quantization"])
def test_seven_bit_weights_are_the_default_where_eight_overflow(name: str) -> None:
    def default(*isa: str) -> Any:
        return registry().info(name, Accelerator(isa=frozenset(isa))).parameter("reduce_range").default

    assert default("avx2") is True
    assert default("avx2", "avx512_vnni") is False
    assert default("asimd") is False
    assert default() is False


def test_seven_bit_weights_are_for_the_cpu_alone() -> None:
    beside_a_gpu = Accelerator("gpu", "CUDAExecutionProvider", isa=frozenset({"avx2"}))
    parameter = registry().info("static_quantization", beside_a_gpu).parameter("reduce_range")
    assert parameter.default is False
    assert parameter.search is None


def test_reduce_range_is_ignored_for_unsigned_weights() -> None:
    space = searched(registry().info("dynamic_quantization", Accelerator(isa=frozenset({"avx2"}))))
    unsigned = [point for point in space.iterate() if point["weight_type"] == "QUInt8"]
    assert unsigned
    assert all("reduce_range" not in point for point in unsigned)


def test_signed_activations_are_searched_on_arm() -> None:
    def activations(*isa: str) -> set[str]:
        info = registry().info("static_quantization", Accelerator(isa=frozenset(isa)))
        return {point["activation_type"] for point in searched(info, weight_type="QInt8", quant_format="QDQ").iterate()}

    assert activations("avx2") == {"QUInt8"}
    assert activations("asimd") == {"QInt8"}
    assert activations() == {"QInt8", "QUInt8"}


def test_the_default_types_are_those_that_the_accelerator_computes_fast() -> None:
    def activation_type(accelerator: Accelerator, **params: Any) -> Any:
        info = registry().info("static_quantization", accelerator)
        return NodeSpace(fixed=params, defaults=info.defaults).config({})["activation_type"]

    assert activation_type(Accelerator(isa=VNNI)) == "QUInt8"
    assert activation_type(Accelerator(isa=frozenset({"asimddp"}))) == "QInt8"
    cuda = Accelerator("gpu", "CUDAExecutionProvider", isa=VNNI)
    assert activation_type(cuda) == "QInt8"
    assert activation_type(cuda, weight_type="QUInt8") == "QUInt8"
    assert "Conv" not in registry().info("dynamic_quantization").defaults["op_types"]
