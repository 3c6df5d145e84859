"""Log records of the logger `autoopt` on standard error, for `--verbose` and `--debug`."""

from __future__ import annotations

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"
"""Records of worker processes carry the process id of their worker."""


def show_logs(debug: bool) -> None:
    """Show the logger's records from level INFO on, or from DEBUG on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("autoopt")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    if debug:
        logger.setLevel(logging.DEBUG)


def is_verbose() -> bool:
    """True if `--verbose` or `--debug` was given."""
    return logging.getLogger("autoopt").isEnabledFor(logging.INFO)
