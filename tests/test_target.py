"""Targets and accelerators as records and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoopt.json_codec import from_json, to_json
from autoopt.target import DEFAULT_EP, Accelerator, Target

FEATURES = st.frozensets(st.sampled_from(["avx2", "avx512_vnni", "amx_int8"]))


@given(st.sampled_from(sorted(DEFAULT_EP)), st.none() | st.integers(0, 1 << 40), FEATURES)
def test_an_accelerator_survives_json(device: str, memory: int | None, isa: frozenset[str]) -> None:
    accelerator = Accelerator(device, DEFAULT_EP[device], memory, isa)
    assert from_json(Accelerator, json.loads(json.dumps(to_json(accelerator)))) == accelerator


def test_the_name_of_a_target_is_not_part_of_its_content() -> None:
    target = Target(threads=4, memory=1 << 30)
    assert replace(target, name="mine").content == target.content
    assert from_json(Target, target.content) == target
