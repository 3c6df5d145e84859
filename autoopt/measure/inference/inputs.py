"""The items that a meter runs: the given data, or synthetic items made for the model's own inputs."""

from __future__ import annotations

from autoopt.data.dataset import DataSet
from autoopt.data.digest import digest
from autoopt.data.opening import open_data
from autoopt.data.sources import synthetic
from autoopt.errors import InputError
from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.request import MeasureRequest, ModelFile
from autoopt.model.candidate import digest_json

OPEN_SIZES = (8, 1, 2, 64, 224, 128)
"""Sizes of open dimensions to try if the model does not run with the usual ones."""
CACHED_DATA_SETS = 2
"""A trial's meters use the same data one after the other, so few data sets suffice."""

_cache: dict[str, DataSet] = {}


def evaluation_data(request: MeasureRequest) -> DataSet:
    """Open the request's data, or make synthetic items for its source model (the candidate if there is no source).

    Raises:
        InputError: the data cannot be read, or inputs of this kind cannot be made up.
    """
    model = request.source or request.candidate
    settings = request.settings
    if request.data is not None:
        key = digest(request.data) + model.path
    else:
        key = digest_json([model.digest, settings.dimensions, settings.shapes, settings.ranges])
    if key in _cache:
        return _cache[key]
    data = _synthetic_data(request, model) if request.data is None else open_data(request.data, model.path)
    while len(_cache) >= CACHED_DATA_SETS:
        del _cache[next(iter(_cache))]
    _cache[key] = data
    return data


def _synthetic_data(request: MeasureRequest, model: ModelFile) -> DataSet:
    """Make items with the first sizes of open dimensions that the model runs with."""

    def load(open_size: int | None = None) -> DataSet:
        settings = request.settings
        return synthetic.load(
            model.path,
            dimensions=settings.dimensions,
            shapes=settings.shapes,
            ranges=settings.ranges,
            open_size=open_size,
        )

    usual = load()
    try:
        runner = ModelRunner.open(model, request)
    except Exception:  # The runtime refuses the model: the caller runs it again and reports the runtime's own message.
        return usual
    for size in (None, *OPEN_SIZES):
        data = usual if size is None else load(size)
        try:
            runner.run(next(data.feeds())[0])
        except InputError:
            raise
        except Exception:  # The model does not take these sizes.
            continue
        return data
    return usual
