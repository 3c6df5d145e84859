"""Data sets: their configs, which are light to import, and their reading in a worker, which is imported late.

Read `config` first. `components` lists the parts that a config may name, `sources` and `steps` implement them, and
`opening` puts them together to a `dataset`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoopt.data.components import (
    register_dataloader,
    register_load_dataset,
    register_post_process,
    register_pre_process,
)
from autoopt.data.config import ComponentConfig, DataConfig
from autoopt.data.digest import digest

if TYPE_CHECKING:
    from autoopt.data.dataset import DataSet

__all__ = [
    "ComponentConfig",
    "DataConfig",
    "digest",
    "open_data",
    "register_dataloader",
    "register_load_dataset",
    "register_post_process",
    "register_pre_process",
]


def open_data(config: object, model: str | Path | None = None) -> DataSet:
    """The data set of a config, in a worker; see `autoopt.data.opening.open_data`."""
    from autoopt.data import opening

    return opening.open_data(config, model)
