"""Model files: admission and identity, reading and writing, sessions. Read `candidate` and `files` first.

Everything that opens a user's model runs in a worker, as a function of `worker`; planning sees only an `Inspection`.
"""
