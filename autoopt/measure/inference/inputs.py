"""The items that a meter runs: the given data, or synthetic items made for the model's own inputs."""

from __future__ import annotations

from autoopt.data.dataset import DataSet
from autoopt.data.digest import check_unchanged
from autoopt.data.opening import open_data
from autoopt.measure.request import MeasureRequest
from autoopt.model.candidate import digest_json

CACHED_DATA_SETS = 2
"""A trial's meters use the same data one after the other, so few data sets suffice."""

_cache: dict[str, DataSet] = {}


def evaluation_data(request: MeasureRequest) -> DataSet:
    """Open the request's data, or make synthetic items for its source model (the candidate if there is no source).

    Raises:
        InputError: the data cannot be read or change meanwhile, or inputs of this kind cannot be made up.
    """
    model = request.source or request.candidate
    settings = request.settings
    digest_before = request.data_key
    key = digest_json([digest_before, model.path, model.digest, settings.made_up])
    if key in _cache:
        return _cache[key]
    if request.data is not None:
        data = open_data(request.data, model.path, settings.roles)
        check_unchanged(request.data, digest_before)
    else:
        made_up = {"load_dataset": {"type": "synthetic", "params": settings.made_up}}
        data = open_data(made_up, model.path)
    while len(_cache) >= CACHED_DATA_SETS:
        del _cache[next(iter(_cache))]
    _cache[key] = data
    return data
