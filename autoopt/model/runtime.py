"""What the installed runtime can do, as a worker function."""

from __future__ import annotations

from typing import Any


def providers(payload: dict[str, Any]) -> dict[str, Any]:
    """The execution providers of the installed onnxruntime: `{"providers": [name, ...]}`, best first."""
    import onnxruntime

    return {"providers": list(onnxruntime.get_available_providers())}
