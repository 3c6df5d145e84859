"""Signals that end a command."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

from autoopt.errors import Interrupt

REPEAT_SECONDS: Final = 0.1
"""A signal that got lost is repeated after this time."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that its result so far is written; no signal gets lost.

    SIGHUP comes when the terminal closes; who ignores it, as `nohup` does, wants the command to go on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    before = {
        number: signal.signal(number, _interrupt)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    hook, main_thread = sys.unraisablehook, threading.get_ident()

    def repeat_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
        # Python drops a KeyboardInterrupt that arrives while a finalizer or the callback of a weak reference runs.
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # In this thread, the repetition would reach the hook and be dropped as well.
            threading.Timer(REPEAT_SECONDS, signal.pthread_kill, [main_thread, signal.SIGINT]).start()
        else:
            hook(unraisable)

    sys.unraisablehook = repeat_interrupt
    try:
        yield
    except Exception as error:
        if Interrupt.received:  # Python makes a RuntimeError of it while a class is created; or it met another failure
            raise KeyboardInterrupt from error
        raise
    finally:
        sys.unraisablehook = hook
        Interrupt.received = False
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(code: int) -> NoReturn:
    """End an interrupted process with this exit code.

    Python itself would end it by SIGINT if the interrupt met code that was compiled from text, as dataclasses are.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    Interrupt.received = True
    raise KeyboardInterrupt
