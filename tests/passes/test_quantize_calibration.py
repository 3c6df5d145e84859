"""Ranges are computed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import step
from micro_models import MODELS

from autoopt.passes.quantize import calibration as ranges


def test_points_that_differ_only_in_types_share_one_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    real = ranges._compute

    def counting(model: Any, feeds: Any, method: str, *rest: Any) -> None:
        computed.append(method)
        real(model, feeds, method, *rest)

    monkeypatch.setattr(ranges, "_compute", counting)
    monkeypatch.setattr(ranges, "_cache", type(ranges._cache)())
    model = MODELS["small_cnn"]()
    for params in ({}, {"per_channel": True}, {"weight_type": "QUInt8"}, {"calibrate_method": "Percentile"}):
        assert step(tmp_path, model, "static_quantization", True, **params)["outcome"] == "ok"
    assert computed == ["MinMax", "Percentile"]
