"""The list of built-in passes. A new one adds one line to `built_in.txt`; nothing else needs an edit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from autoopt.json_codec import JsonObject

_LINES = Path(__file__).with_name("built_in.txt").read_text(encoding="utf-8").splitlines()
_ROWS = [line.split(maxsplit=2) for line in _LINES if line and not line.startswith("#")]
BUILT_IN: Final[Mapping[str, str]] = {name: f"autoopt.passes.{rest[0]}" for name, *rest in _ROWS if len(rest) == 1}
"""Name -> `module:attribute` of the class or function."""
PRESETS: Final[Mapping[str, tuple[str, JsonObject]]] = {
    name: (rest[0], json.loads(rest[1])) for name, *rest in _ROWS if len(rest) == 2
}
"""Name of a pass with parameters -> the pass, and the parameters."""
