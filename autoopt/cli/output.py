"""What commands write: one JSON document, or text for people."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TextIO

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def print_json(value: Any, stream: TextIO | None = None) -> None:
    """Write one JSON document; numbers that JSON cannot hold become null."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    (stream or sys.stdout).write(text + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


@contextmanager
def stdout_kept() -> Iterator[TextIO]:
    """The real standard output; what anything else writes there meanwhile goes to standard error, also native code."""
    sys.stdout.flush()
    kept = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with os.fdopen(kept, "w", encoding="utf-8") as stream:
        try:
            yield stream
        finally:
            sys.stdout.flush()
            stream.flush()
            os.dup2(kept, sys.stdout.fileno())
