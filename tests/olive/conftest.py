"""An Olive configuration as a file, and its conversion."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from autoopt.olive import Conversion, convert

Convert: TypeAlias = Callable[..., Conversion]


@pytest.fixture
def converted(tmp_path: Path) -> Convert:
    """Convert a configuration of these fields; without `passes` it quantizes."""

    def call(**fields: Any) -> Conversion:
        file = tmp_path / "config.json"
        fields.setdefault("passes", {"quantize": {"type": "OnnxDynamicQuantization"}})
        file.write_text(json.dumps(fields, indent=1))
        return convert(file, tmp_path)

    return call
