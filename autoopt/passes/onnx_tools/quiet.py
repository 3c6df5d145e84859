"""Silence for libraries that print and warn."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep prints, warnings and log records of libraries out of the worker's pipes."""
    if "onnxruntime" in sys.modules:
        sys.modules["onnxruntime"].set_default_logger_severity(4)  # fatal errors only
    previous = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
