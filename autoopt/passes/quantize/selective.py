"""Static quantization of all layers but the most sensitive ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from autoopt.model.lazy_imports import ir
from autoopt.passes.base import Refused, Retry
from autoopt.passes.quantize.static import StaticQuantization
from autoopt.registry import Minimum, Unit
from autoopt.space import Categorical
from autoopt.tuning import QUANTIZATION

if TYPE_CHECKING:
    from onnx import ModelProto


def _noise(entry: Mapping[str, Any]) -> float:
    """Power of the noise relative to the signal."""
    return math.pow(10, -float(entry["sqnr_db"]) / 10)


def _noise_for_work(entry: Mapping[str, Any]) -> float:
    """Noise in relation to the work that is not done in integers if the layer stays in float."""
    # Shares are rounded to 6 digits, so that of a small layer may be 0.
    return _noise(entry) / max(float(entry["work"]), 1e-6)


RANKINGS: Final[Mapping[str, Callable[[Mapping[str, Any]], float]]] = {
    "noise": _noise,
    "noise_for_work": _noise_for_work,
    "work": lambda entry: -float(entry["work"]),
}
"""Value of `rank_by` -> the key of a layer; those with the highest keys stay in float."""


def layers_to_exclude(ranking: Sequence[Mapping[str, Any]], least_sqnr_db: float) -> int:
    """Count the layers, from the first one, without which the others leave at least this signal-to-noise ratio, in dB.

    The noise of the layers adds up. A ratio of 0 needs none.
    """
    if least_sqnr_db <= 0:
        return 0
    most = math.pow(10, -least_sqnr_db / 10)
    noise = 0.0
    for count in range(len(ranking), 0, -1):
        noise += _noise(ranking[count - 1])
        if noise > most:
            return count
    return 0


class SelectiveQuantization(StaticQuantization):
    """Static 8-bit quantization that keeps the most sensitive layers in float32.

    Reads the ranking of `layer_sensitivity`, which runs first. With `rank_by` noise_for_work, layers with less than
    0.1 % of the work stay in float too and do not count: they would come first, whatever their noise.
    """

    requires: ClassVar[tuple[str, ...]] = ("quant_pre_process", "layer_sensitivity")
    aliases: ClassVar[tuple[str, ...]] = ("node_exclusion",)

    version = 10

    exclude_worst: Annotated[
        int, Minimum(0), Categorical(1, 2, 4, 8), "number of the most sensitive layers to keep in float32"
    ] = 2
    least_sqnr_db: Annotated[
        int,
        Unit("dB"),
        "keep more layers in float32 until the outputs' expected signal-to-noise ratio reaches this; 0: none",
    ] = 0
    rank_by: Annotated[
        Literal["noise_for_work", "noise", "work"],
        "layers kept in float32: of the most noise for their share of the work, the most noise, or the least work",
    ] = "noise_for_work"
    quant_format: Annotated[Literal["QDQ", "QOperator"], "representation of quantized operators"] = "QDQ"
    weight_type: Annotated[Literal["QInt8", "QUInt8"], "type of the weights"] = "QInt8"
    op_types: Annotated[list[str], "operator types to quantize; empty: all that have a quantized form"] = []

    def run(self, source: ir.Model) -> ir.Model | ModelProto | Retry | None:
        report = self.context.reports.get("layer_sensitivity")
        if report is None:
            raise Refused("the report of layer_sensitivity is missing")
        worst = self._layers_in_float(report["ranking"])
        requested = list(self.nodes_to_exclude)
        self.nodes_to_exclude = sorted({*requested, *worst})
        result = super().run(source)
        self.nodes_to_exclude = requested
        if isinstance(result, Retry) and "nodes_to_exclude" in result.params:
            # The worst layers follow from the report again, so they stay out of the recorded parameters.
            nodes: list[str] = result.params["nodes_to_exclude"]  # type: ignore[assignment]  # static quantization sets it
            return Retry(result.reason, {"nodes_to_exclude": sorted(set(nodes) - set(worst))})
        return result

    def _layers_in_float(self, layers: Sequence[Mapping[str, Any]]) -> list[str]:
        """The names of the layers to keep in float: those of next to no work, then the most sensitive of the others."""
        small = [
            entry for entry in layers if self.rank_by == "noise_for_work" and entry["work"] < QUANTIZATION.little_work
        ]
        counted = [entry for entry in layers if entry not in small]
        ranking = sorted(counted, key=RANKINGS[self.rank_by], reverse=True)
        count = max(self.exclude_worst, layers_to_exclude(ranking, self.least_sqnr_db))
        if count >= len(ranking) > self.exclude_worst:
            raise Refused(f"only with all {len(ranking)} layers in float would outputs reach {self.least_sqnr_db} dB")
        if small and count >= len(ranking):
            raise Refused(f"only {len(ranking)} layers have more than {QUANTIZATION.little_work * 100:g} % of the work")
        return [entry["node"] for entry in (*small, *ranking[:count])]
