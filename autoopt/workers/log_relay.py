"""Log records of workers, shown by the process that owns the pool as if they were its own.

Worker code uses `logging.getLogger(__name__)` as any other. Records keep the process id of their worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from autoopt.json_codec import from_json, to_json
from autoopt.workers.protocol import LogLine, encode, shorten

ROOT = "autoopt"
"""Logger above all loggers of this project."""


def requested_level() -> int:
    """The level from which workers have to send records; 0 if nobody in this process listens."""
    logger = logging.getLogger(ROOT)
    if logger.isEnabledFor(logging.INFO):
        return logger.getEffectiveLevel()
    return 0


def send_records(level: int, send: Callable[[bytes], None]) -> None:
    """In a worker: pass the records of `autoopt` loggers from `level` on to `send`, encoded; 0 for none."""
    logger = logging.getLogger(ROOT)
    logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, _Sender)]
    logger.setLevel(level or logging.WARNING)
    logger.propagate = False
    if level:
        logger.addHandler(_Sender(send))


class _Sender(logging.Handler):
    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        message = shorten(record.getMessage())
        line = LogLine(record.name, record.levelno, message, record.created, record.process or 0)
        self._send(encode({"log": to_json(line)}))


def show_record(message: object) -> None:
    """In the process of the pool: log a worker's `LogLine`."""
    line = from_json(LogLine, message)
    logger = logging.getLogger(line.name)
    if logger.isEnabledFor(line.level):
        fields = {"levelno": line.level, "levelname": logging.getLevelName(line.level), "msg": line.message}
        fields |= {"name": line.name, "created": line.created, "process": line.process}
        logger.handle(logging.makeLogRecord(fields))
