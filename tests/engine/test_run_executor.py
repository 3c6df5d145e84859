"""The inline executor runs trials in threads and stops them with an error."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future

import pytest
from children import HANG_SECONDS

from autoopt.engine.run.executor import InlineExecutor, result_of
from autoopt.outcome import Outcome
from autoopt.results import Trial

RESULT = Trial("run", 0, "c", {}, outcome=Outcome.OK)


def test_trials_run_in_parallel() -> None:
    both = threading.Barrier(2, timeout=HANG_SECONDS)

    def work() -> Trial:
        both.wait()  # passes only if two trials run at the same time
        return RESULT

    with InlineExecutor(2, lambda: None) as executor:
        futures = [executor.submit("c", "chain", number, work) for number in range(2)]
        assert [future.result() for future in futures] == [RESULT, RESULT]


def test_an_error_in_a_trial_is_raised_by_its_future() -> None:
    def work() -> Trial:
        raise ValueError("a bug")

    with InlineExecutor(1, lambda: None) as executor:
        future = executor.submit("c", "chain", 0, work)
        with pytest.raises(ValueError, match="a bug"):
            future.result()


def test_an_interrupt_stops_the_trials_under_way() -> None:
    stopped = threading.Event()
    started = threading.Event()

    def work() -> Trial:
        started.set()
        assert stopped.wait(HANG_SECONDS)
        return RESULT

    futures: list[Future[Trial]] = []

    def interrupted() -> None:
        with InlineExecutor(1, stopped.set) as executor:
            futures.extend(executor.submit("c", "chain", number, work) for number in range(2))
            assert started.wait(HANG_SECONDS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    running, waiting = futures
    assert running.result() == RESULT
    assert waiting.cancelled()


def test_the_end_of_a_block_waits_for_its_trials() -> None:
    results: list[Trial] = []

    def work() -> Trial:
        results.append(RESULT)
        return RESULT

    with InlineExecutor(0, lambda: None) as executor:
        executor.submit("c", "chain", 0, work)
    assert results == [RESULT]


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
