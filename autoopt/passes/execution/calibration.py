"""The calibration data as feeds of the model at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

    from autoopt.data.fit import InputSpec


Feed: TypeAlias = "dict[str, np.ndarray]"


def calibration_source(config: Any, model: ModelProto, path: Path) -> Callable[[], Iterator[Feed]]:
    """A function that gives the feeds of the data `config` from the start, fitted to the inputs of `model` (at `path`).

    One item a feed, unless the data or the model's fixed batch size say otherwise; a last feed that is too short for
    a fixed batch is left out. Recurrent state is what the model itself gives for the item before.
    """
    from autoopt.data import DataConfig, open_data
    from autoopt.data.fit import batch_limit

    parsed = DataConfig.parse(config)
    specs = [spec for spec in input_specs(model) if spec.name not in parsed.state.values()]
    states = [spec for spec in input_specs(model) if spec.name in parsed.state.values()]

    def feeds() -> Iterator[Feed]:
        data = open_data(parsed, path)
        fixed = batch_limit(specs, data.columns)
        size = fixed or parsed.batch_size or 1
        whole = (feed for feed, _ in data.feeds(size) if fixed in (None, 1) or _items(feed) == fixed)
        return (
            _fitted(whole, specs)
            if not states
            else _recurrent(whole, specs, states, parsed.state, path, parsed.reset_every)
        )

    return feeds


def input_specs(model: ModelProto) -> list[InputSpec]:
    """The inputs a caller gives, as onnxruntime would describe them."""
    from onnx import TensorProto

    from autoopt.data.fit import InputSpec

    weights = {tensor.name for tensor in model.graph.initializer}
    specs = []
    for value in model.graph.input:
        if value.name not in weights and value.type.HasField("tensor_type"):
            kind = value.type.tensor_type
            dims = tuple(d.dim_value or d.dim_param or None for d in kind.shape.dim)
            name = TensorProto.DataType.Name(kind.elem_type).lower()
            specs.append(InputSpec(value.name, f"tensor({name})", dims if kind.HasField("shape") else None))
    return specs


def _items(feed: Mapping[str, Any]) -> int:
    return max((array.shape[0] for array in feed.values() if getattr(array, "ndim", 0)), default=1)


def _fitted(feeds: Iterator[Feed], specs: list[InputSpec]) -> Iterator[Feed]:
    from autoopt.data.fit import fit

    return (fit(feed, specs) for feed in feeds)


def _recurrent(
    feeds: Iterator[Feed],
    specs: list[InputSpec],
    states: list[InputSpec],
    fed_back: Mapping[str, str],
    path: Path,
    reset_every: int | None,
) -> Iterator[Feed]:
    """Feeds with state inputs: zero at first, then what the model at `path` gave. `fed_back`: output -> input."""
    import numpy as np

    from autoopt.data.fit import fit
    from autoopt.model.session import make_session

    session = make_session(path)
    outputs = list(fed_back)
    zero = {s.name: np.zeros([d if isinstance(d, int) else 1 for d in s.shape or ()], s.dtype) for s in states}
    state = dict(zero)
    for number, feed in enumerate(feeds):
        if reset_every and number % reset_every == 0:
            state = dict(zero)
        whole = {**fit(feed, specs), **state}
        yield whole
        state = {fed_back[o]: value for o, value in zip(outputs, session.run(outputs, whole), strict=True)}
