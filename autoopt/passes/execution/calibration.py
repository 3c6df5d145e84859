"""Calibration data as inputs of the current model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.data import DataConfig
from autoopt.data.config import BUILT_IN
from autoopt.data.dataset import DataSet
from autoopt.data.digest import check_unchanged, digest
from autoopt.data.fit import InputSpec, batch_limit, fit
from autoopt.data.opening import loader_of, open_data
from autoopt.data.sources.synthetic import input_spec
from autoopt.model.candidate import digest_json
from autoopt.model.roles import Kind, input_roles
from autoopt.model.session import make_session
from autoopt.passes.onnx_tools.graphs import caller_inputs

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

Feed: TypeAlias = "dict[str, np.ndarray]"
CACHED_BYTES: Final = 256 << 20
"""Largest data set that a worker keeps: one pass reads its data up to ten times, and the next pass the same again."""

_cache: dict[str, DataSet] = {}
"""The last data set, by its content and the inputs of the model."""


def calibration_source(
    config: object, model: ModelProto, path: Path, roles: Mapping[str, Kind] | None = None
) -> Callable[[], Iterator[Feed]]:
    """Make a function that returns the data of a config from the start, fitted to the inputs of `model` in `path`.

    A feed holds one item, unless the data or the model's fixed batch size determine another number. A last feed that
    is too short for a fixed batch is dropped. Recurrent state is the model's own output for the previous item. `roles`
    are the kinds of inputs that the user gives.
    """
    parsed = DataConfig.parse(config)
    specs: list[InputSpec] = []
    states: list[InputSpec] = []
    for value in caller_inputs(model):
        if not value.type.HasField("tensor_type"):
            continue
        spec = input_spec(value)
        if spec.name in parsed.state.values():
            states.append(spec)
        else:
            specs.append(spec)

    def feeds() -> Iterator[Feed]:
        data = _opened(parsed, path, [*specs, *states], roles)
        batch = batch_limit(specs, data.columns)
        size = batch or parsed.batch_size or 1
        full = (feed for feed, _ in data.feeds(size) if batch in (None, 1) or _item_count(feed) == batch)
        if states:
            return _with_state(full, specs, states, parsed, path)
        known = input_roles(specs, given=roles)
        return (fit(feed, specs, roles=known) for feed in full)

    return feeds


def _opened(config: DataConfig, path: Path, specs: list[InputSpec], roles: Mapping[str, Kind] | None) -> DataSet:
    """The data set of a config, for the model in `path` with these inputs."""
    content = digest(config)
    key = content + digest_json([repr(specs), dict(roles or {})])
    if loader_of(config) not in BUILT_IN["load_dataset"]:  # it may read anything from the model
        key += str(path)
    if key not in _cache:
        _cache.clear()
        data = open_data(config, path, roles)
        check_unchanged(config, content)
        arrays = (*data.columns.values(), *chain.from_iterable(data.uneven.values()))
        if sum(array.nbytes for array in arrays) > CACHED_BYTES:
            return data
        _cache[key] = data
    return _cache[key]


def _item_count(feed: Mapping[str, np.ndarray]) -> int:
    return max((array.shape[0] for array in feed.values() if getattr(array, "ndim", 0)), default=1)


def _with_state(
    feeds: Iterator[Feed], specs: list[InputSpec], states: list[InputSpec], config: DataConfig, path: Path
) -> Iterator[Feed]:
    """Add the state inputs: zeros or those of the data at first, then outputs of the model at `path`."""
    session = make_session(path)
    outputs = list(config.state)  # maps outputs to the inputs that they feed
    zeros = {spec.name: spec.zeros() for spec in states}
    state, starts = dict(zeros), frozenset(config.starts or ())
    for number, feed in enumerate(feeds):
        if config.reset_every and number % config.reset_every == 0:
            state = dict(zeros)
        if number in starts:
            state = fit(feed, states)
        complete = {**fit(feed, specs), **state}
        yield complete
        for output, value in zip(outputs, session.run(outputs, complete), strict=True):
            state[config.state[output]] = value
