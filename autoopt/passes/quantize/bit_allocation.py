"""Matrices that need more bits than others, by the effect of their rounding on the model's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoopt.model import io
from autoopt.model.lazy_imports import helper, numpy_helper, onnx
from autoopt.model.session import make_plain_session
from autoopt.model.tensors import by_name
from autoopt.passes.quantize.block_grid import BlockGrid
from autoopt.passes.quantize.embeddings import returned_values

if TYPE_CHECKING:
    from onnx import NodeProto

    from autoopt.data.dataset import Feed


def rounding_noise(
    model: onnx.ModelProto, nodes: Sequence[NodeProto], grid: BlockGrid, feeds: Sequence[Feed], work: Path
) -> dict[str, float]:
    """Noise of the outputs relative to their power with the matrix of only one MatMul rounded, by the weight's name.

    Outputs that hold a decoder's cache do not count. The weights are inputs of one session, so that it loads once.
    """
    tensors = by_name(model.graph.initializer)
    names = list(dict.fromkeys(node.input[1] for node in nodes))
    open_model = onnx.ModelProto()
    open_model.CopyFrom(model)
    for name in names:
        value = helper.make_tensor_value_info(name, tensors[name].data_type, tensors[name].dims)
        open_model.graph.input.append(value)
    session = make_plain_session(io.save(open_model, work / "open"))
    outputs = returned_values(model)
    exact = [session.run(outputs, dict(feed)) for feed in feeds]
    noise = {}
    for name in names:
        weight = {name: grid.rounded(numpy_helper.to_array(tensors[name]))}
        noisy = [session.run(outputs, {**feed, **weight}) for feed in feeds]
        noise[name] = float(np.mean([_relative_noise(*pair) for pair in zip(noisy, exact, strict=True)]))
    return noise


def _relative_noise(noisy: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """Mean over the outputs of one item."""
    ratios = []
    for values, others in zip(noisy, exact, strict=True):
        # An output of zeros has no power: any noise in it counts as very large.
        power = np.square(others, dtype=np.float64).sum()
        ratios.append(np.square(np.subtract(values, others, dtype=np.float64)).sum() / max(power, 1e-30))
    return float(np.mean(ratios))


def most_sensitive(noise: Mapping[str, float], sizes: Mapping[str, int], share: float) -> set[str]:
    """Choose the weights with the most noise for their size, up to a share (0 to 1) of the size of all of them."""
    remaining = share * sum(sizes[name] for name in noise)
    chosen = set()
    for name in sorted(noise, key=lambda name: (-noise[name] / sizes[name], name)):
        if sizes[name] <= remaining:
            chosen.add(name)
            remaining -= sizes[name]
    return chosen
