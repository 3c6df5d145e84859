"""Waiting for the result of a trial."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future

import pytest
from children import HANG_SECONDS

from autoopt.engine.run.executor import result_of
from autoopt.outcome import Outcome
from autoopt.results import Trial

RESULT = Trial("run", 0, "c", {}, outcome=Outcome.OK)


def test_a_signal_that_another_thread_receives_interrupts_the_wait_for_a_result() -> None:
    future: Future[Trial] = Future()
    interrupted = threading.Event()
    in_time = []

    def receive_signal() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        in_time.append(interrupted.wait(HANG_SECONDS))
        future.set_result(RESULT)

    def wait_for_result() -> None:
        thread.start()
        result_of(future)

    thread = threading.Thread(target=receive_signal)
    with pytest.raises(KeyboardInterrupt):
        wait_for_result()
    interrupted.set()
    thread.join()
    assert in_time == [True]
