"""The examples of the operating guide."""

from __future__ import annotations

import re
from pathlib import Path

GUIDE = (Path(__file__).parents[2] / "docs" / "zoos.md").read_text()


def example(name: str, language: str = "yaml") -> str:
    """The example that begins with `# file: name`."""
    found = re.search(rf"```{language}\n# file: {re.escape(name)}\n(.*?)```", GUIDE, re.DOTALL)
    assert found, name
    return found[1]
