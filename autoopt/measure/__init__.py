"""Measuring: one module per kind of metric; `worker` holds the functions that a worker process calls."""
