"""Log records of workers reach the process that owns the pool."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator

import pytest

from autoopt.workers import WorkerPool
from autoopt.workers.protocol import send_records, show_record


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger above all loggers of autoopt, restored afterwards."""
    root = logging.getLogger("autoopt")
    level, handlers, propagate = root.level, list(root.handlers), root.propagate
    yield root
    root.handlers, root.propagate = handlers, propagate
    root.setLevel(level)


def test_a_record_passes_as_one_line_and_is_shown_with_the_process_of_its_worker(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[bytes] = []
    send_records(logging.INFO, lines.append)
    logging.getLogger("autoopt.passes").info("step %d\nof 2", 1)
    logging.getLogger("autoopt.passes").debug("a detail")
    send_records(0, lines.append)
    logging.getLogger("autoopt.passes").info("unseen")
    [message] = [json.loads(line)["log"] for line in lines]
    assert (message["message"], message["process"]) == ("step 1 of 2", os.getpid())
    logger.propagate = True
    with caplog.at_level(logging.INFO, "autoopt"):
        show_record({**message, "process": 4242})
    [record] = caplog.records
    assert (record.name, record.levelname, record.process) == ("autoopt.passes", "INFO", 4242)
    assert record.getMessage() == "step 1 of 2"


def test_records_of_a_real_worker_arrive_with_its_process_id(
    jobs: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with WorkerPool(size=1, env=jobs) as pool:
        with caplog.at_level(logging.INFO, "autoopt"):
            value = pool.call("jobs:log", {"text": "halfway"}).value
        assert pool.call("jobs:log", {"text": "unseen"}).value == value
    assert value
    messages = {record.getMessage(): record.process for record in caplog.records if record.name == "autoopt.jobs"}
    assert messages == {"halfway": value["pid"]}
    assert value["pid"] != os.getpid()
