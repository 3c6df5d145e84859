"""The store in memory, for tests: the contracts without a database, for the threads of one process.

Read `store` first; `state` holds what the parts share.
"""

from autoopt.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
