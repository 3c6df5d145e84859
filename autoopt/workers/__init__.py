"""Warm worker processes that can be killed, and the measurement gate of the machine.

Whatever touches a model or a user's script runs here, as `module:function(JSON) -> JSON` within a time and a memory
limit. Read `pool` first, then `process` (the pool's side of one worker), `child` (the worker's side) and `protocol`
(what they exchange). `gate` keeps other work of autoopt away while a latency is measured.
"""

from autoopt.workers.gate import Gate
from autoopt.workers.pool import WorkerPool, call_once, gated_call, reading_call, repeated_call
from autoopt.workers.process import CallResult, Cancelled

__all__ = ["CallResult", "Cancelled", "Gate", "WorkerPool", "call_once", "gated_call", "reading_call", "repeated_call"]
