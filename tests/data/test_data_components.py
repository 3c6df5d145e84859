"""The registry of data components."""

from __future__ import annotations

import pytest

from autoopt.data.components import BUILT_IN, component


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in BUILT_IN.items() for n in names])
def test_every_built_in_component_can_be_imported(kind, name):
    assert callable(component(kind, name))
