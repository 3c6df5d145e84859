"""Full configurations and the config classes of passes."""

from __future__ import annotations

from typing import Annotated

import pytest

from autoopt import Categorical, ConditionalDefault, Pass
from autoopt.errors import InputError
from autoopt.passes.base.config import full_config
from autoopt.registry import describe


class Example(Pass):
    """An example."""

    needed: int
    kind: Annotated[str, Categorical("a", "b"), "what kind"] = "a"
    size: int = ConditionalDefault("kind", {"a": 1, "b": 2}, default=3)  # type: ignore[assignment]
    both: int = ConditionalDefault(("kind", "size"), {("b", 2): 22}, default=0)  # type: ignore[assignment]


INFO = describe("example", Example)


def test_defaults_follow_their_parents() -> None:
    assert full_config(INFO, {"needed": 1}) == {"needed": 1, "kind": "a", "size": 1, "both": 0}
    assert full_config(INFO, {"needed": 1, "kind": "b"}) == {"needed": 1, "kind": "b", "size": 2, "both": 22}
    assert full_config(INFO, {"needed": 1, "kind": "b", "size": 9})["both"] == 0


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "needs parameter 'needed'"),
        ({"needed": 1, "kin": "a"}, "did you mean 'kind'"),
        ({"needed": "1"}, "must be int, not '1'"),
        ({"needed": True}, "must be int"),
    ],
)
def test_wrong_parameters_are_named(params: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        full_config(INFO, params)
