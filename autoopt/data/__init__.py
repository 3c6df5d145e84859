"""Data sets: their configs, which import fast, and the code that reads them in a worker, which is imported late.

Read `config` first. It lists the parts that a config may name; `sources` and `steps` implement them, and `opening`
builds a `dataset` from them.
"""

from __future__ import annotations

from autoopt.data.config import (
    ComponentConfig,
    DataConfig,
    register_dataloader,
    register_load_dataset,
    register_post_process,
    register_pre_process,
)
from autoopt.data.digest import digest

__all__ = [
    "ComponentConfig",
    "DataConfig",
    "digest",
    "register_dataloader",
    "register_load_dataset",
    "register_post_process",
    "register_pre_process",
]
