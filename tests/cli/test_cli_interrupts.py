"""Signals that end a command."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from autoopt.cli.interrupts import ended_by_sigterm


def test_sigterm_ends_a_block_as_ctrl_c_does_and_is_handled_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_threads_leave_signals_alone() -> None:
    handlers = []

    def work() -> None:
        with ended_by_sigterm():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]
