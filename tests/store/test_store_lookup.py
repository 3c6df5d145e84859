"""Ids and their beginnings."""

from __future__ import annotations

import pytest

from autoopt.errors import InputError
from autoopt.store.lookup import require_single_match


def test_a_single_match_is_accepted() -> None:
    require_single_match("run", "ab", ["abc1"], "here")


def test_an_unknown_name_is_refused_with_the_place() -> None:
    with pytest.raises(InputError, match=r"^here: there is no run 'xyz' in the store$"):
        require_single_match("run", "xyz", [], "here")


def test_an_ambiguous_name_is_refused_with_longer_beginnings() -> None:
    with pytest.raises(InputError, match=r"run 'ab' is ambiguous; give more of it: abc123, abd123$"):
        require_single_match("run", "ab", ["abc123456789", "abd123456789"], "here")
