"""Where planning learns of passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from autoopt.dag import pass_infos, script_infos
from autoopt.errors import InputError
from autoopt.registry import PassInfo, info_to_json, registry
from autoopt.target import Accelerator

CUDA = Accelerator("gpu", "CUDAExecutionProvider")


def test_registered_passes_are_found_by_name_and_described_for_the_accelerator() -> None:
    assert info_to_json(pass_infos(CUDA)("simplify")) == info_to_json(registry().info("simplify", CUDA))


def test_unknown_passes_name_the_nearest_of_both_sources() -> None:
    infos = pass_infos(Accelerator(), {"my_pass": PassInfo("my_pass", "mine", "s")})
    assert infos("my_pass").family == "mine"
    with pytest.raises(InputError, match="did you mean 'my_pass'"):
        infos("my_pas")
    with pytest.raises(InputError, match="did you mean 'simplify'"):
        infos("simplfy")


def test_a_user_script_is_described_by_one_call_and_only_if_there_is_one() -> None:
    asked: list[dict[str, Any]] = []
    mine = PassInfo("mine", "user", "s", origin="/x/passes.py", source_digest="d")

    def describe(payload: dict[str, Any]) -> Mapping[str, Any]:
        asked.append(payload)
        return {"passes": [info_to_json(mine)]}

    assert script_infos(None, CUDA, describe) == {}
    assert script_infos("/x/passes.py", CUDA, describe) == {"mine": mine}
    (payload,) = asked
    assert payload["user_script"] == "/x/passes.py"
    assert payload["accelerator"]["execution_provider"] == "CUDAExecutionProvider"
