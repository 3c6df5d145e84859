"""Isolated warm processes with limits, and the measurement gate."""

from autoopt.workers.gate import Gate, gated_call
from autoopt.workers.pool import WorkerPool, call_once
from autoopt.workers.process import CallResult, Cancelled

__all__ = ["CallResult", "Cancelled", "Gate", "WorkerPool", "call_once", "gated_call"]
