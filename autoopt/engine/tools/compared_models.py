"""Two model files compared output by output and layer by layer, in a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from autoopt.data.config import DataConfig
from autoopt.errors import InputError
from autoopt.json_codec import from_json
from autoopt.measure.layerwise import ModelComparison
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.model_file import ModelFile
from autoopt.workers import call_once

TIMEOUT_SECONDS: Final = 600.0
ITEMS: Final = 4
"""Items that the models run on."""


def compared_models(first: Path, second: Path, data: str | None) -> ModelComparison:
    """Compare a model with the one that it was made from, on a few items of the data or on generated ones.

    Raises:
        InputError: a file or the data cannot be read, or the models cannot be compared.
    """
    for path in (first, second):
        if not path.is_file():
            raise InputError("no such model", where=str(path))
    if data and Path(data).exists():
        data = str(Path(data).absolute())
    request = MeasureRequest(
        candidate=ModelFile(str(second.absolute())),
        source=ModelFile(str(first.absolute())),
        data=DataConfig.parse(data) if data else None,
        settings=MeasurementSettings(samples=ITEMS),
    )
    result = call_once("autoopt.measure.layerwise:compare_models", request.to_json(), TIMEOUT_SECONDS)
    if result.value is None:
        places = filter(None, (str(first.absolute()), str(second.absolute()), data))
        is_named = any(place in result.message for place in places)
        raise result.to_exception("" if is_named else f"{first} and {second}")
    return from_json(ModelComparison, result.value)
