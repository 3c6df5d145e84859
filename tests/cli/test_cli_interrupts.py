"""Signals that end a command."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from autoopt.cli.interrupts import ended_by_signals


def test_sigterm_ends_a_block_as_ctrl_c_does_and_is_handled_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_threads_leave_signals_alone() -> None:
    handlers = []

    def work() -> None:
        with ended_by_signals():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]


def test_a_signal_that_arrives_in_a_finalizer_ends_the_block() -> None:
    class InterruptedAtItsEnd:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def run() -> None:
        finalized = InterruptedAtItsEnd()
        with ended_by_signals():
            del finalized
            threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        run()


def test_other_errors_in_finalizers_are_reported_as_before() -> None:
    class FailsAtItsEnd:
        def __del__(self) -> None:
            raise ValueError("a finalizer failed")

    reports = []
    before, sys.unraisablehook = sys.unraisablehook, reports.append
    try:
        finalized = FailsAtItsEnd()
        with ended_by_signals():
            del finalized
        assert [report.exc_type for report in reports] == [ValueError]
    finally:
        sys.unraisablehook = before
