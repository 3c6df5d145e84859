"""The items a meter runs: the given data, else items made up from the model's own inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoopt.data.config import DataConfig
from autoopt.data.dataset import DataSet
from autoopt.data.opening import open_data
from autoopt.data.sources import synthetic
from autoopt.errors import InputError
from autoopt.measure.request import Model, Request
from autoopt.model.candidate import digest_json

SIZES = (8, 1, 2, 64, 224, 128)
"""What open dimensions are tried with where a model does not take the usual sizes."""
_SYNTHETIC = ("dimensions", "shapes", "ranges")


def evaluation_data(request: Request) -> DataSet:
    """The request's data, or synthetic items for its source model (its candidate where there is no source).

    Raises:
        InputError: data that cannot be read or made up.
    """
    model = request.source or request.candidate
    if request.data is not None:
        return _opened(request.data, model.path)
    wishes: dict[str, Any] = {k: request.settings[k] for k in _SYNTHETIC if request.settings.get(k)}
    key = digest_json([model.digest, wishes])
    if key not in _cache:
        _keep(key, _made_up(request, model, wishes))
    return _cache[key]


def _made_up(request: Request, model: Model, wishes: Mapping[str, Any]) -> DataSet:
    """Items of the first sizes of open dimensions with which the model runs; of the usual sizes where it never does,
    so that the runtime's own words are seen."""
    from autoopt.measure.inference.runner import Running

    usual = synthetic.load(model.path, **wishes)
    try:
        running = Running.start(model, request)
    except Exception:  # refused altogether: whoever measures it says so
        return usual
    for size in (None, *SIZES):
        made = usual if size is None else synthetic.load(model.path, **wishes, open_size=size)
        try:
            running.run(next(made.feeds())[0])
        except InputError:
            raise
        except Exception:
            continue
        return made
    return usual


_cache: dict[str, DataSet] = {}


def _opened(config: DataConfig, model: str) -> DataSet:
    """Opened data, the last two sets kept: a trial's meters use the same data one after the other."""
    from autoopt.data.digest import digest

    key = digest(config) + model
    if key not in _cache:
        _keep(key, open_data(config, model))
    return _cache[key]


def _keep(key: str, data: DataSet) -> None:
    while len(_cache) > 1:
        del _cache[next(iter(_cache))]
    _cache[key] = data
