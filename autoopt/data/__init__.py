"""Data containers: what a data set is (light) and how a worker reads it (heavy, imported late)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def open_data(config: DataConfig | str | Mapping[str, Any], model: str | Path | None = None) -> DataSet:
    """The data set of a config, in a worker; see `autoopt.data.opening.open_data`."""
    from autoopt.data import opening

    return opening.open_data(config, model)
