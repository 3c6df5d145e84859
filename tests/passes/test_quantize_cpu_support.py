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


@pytest.mark.parametrize("name", ["dynamic_quantization", "static_quantization", "selective_quantization"])
@pytest.mark.parametrize(
    ("isa", "overflows"),
    [({"avx2"}, True), (VNNI, False), ({"avx2", "amx_int8"}, False), ({"asimd"}, False), (set(), False)],
)
def test_seven_bit_weights_are_searched_and_the_default_where_eight_overflow(
    name: str, isa: set[str], overflows: bool
) -> None:
    parameter = registry().info(name, Accelerator(isa=frozenset(isa))).parameter("reduce_range")
    assert (parameter.search is not None, parameter.default) == (overflows, overflows)
    beside_a_gpu = Accelerator("gpu", "CUDAExecutionProvider", isa=frozenset(isa))
    parameter = registry().info("static_quantization", beside_a_gpu).parameter("reduce_range")
    assert (parameter.search, parameter.default) == (None, False)


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


@pytest.mark.parametrize("name", ["weight_only_quantization", "calibrated_weight_quantization"])
def test_products_with_weights_in_blocks_take_int8_activations_on_cpus_alone(name: str) -> None:
    def level(accelerator: Accelerator | None = None) -> Any:
        return registry().info(name, accelerator).parameter("accuracy_level")

    assert level().default == 4
    assert level(Accelerator(isa=VNNI)).default == 4
    assert level(Accelerator("gpu", "CUDAExecutionProvider", isa=VNNI)).default == 0


@pytest.mark.parametrize("name", ["weight_only_quantization", "calibrated_weight_quantization"])
@pytest.mark.parametrize("bits", [4, 8])
def test_float_products_with_8_bits_are_not_searched_beside_integer_ones(name: str, bits: int) -> None:
    def levels(accelerator: Accelerator) -> set[Any]:
        space = searched(registry().info(name, accelerator), bits=bits)
        return {space.config(point)["accuracy_level"] for point in space.iterate()}

    assert levels(Accelerator(isa=VNNI)) == ({0, 4} if bits == 4 else {4})
    assert levels(Accelerator(isa=frozenset({"avx2"}))) == {0, 4}
    assert levels(Accelerator("gpu", "CUDAExecutionProvider", isa=VNNI)) == {0}


def test_all_algorithms_with_4_bits_search_both_kinds_of_products() -> None:
    space = searched(registry().info("weight_only_quantization", Accelerator(isa=VNNI)))
    configs = [space.config(point) for point in space.iterate()]
    assert {(c["algorithm"], c["accuracy_level"]) for c in configs if c["bits"] == 4} == {
        (algorithm, level) for algorithm in ("default", "rtn", "k_quant") for level in (0, 4)
    }
    assert {c["accuracy_level"] for c in configs if c["bits"] == 8} == {4}
