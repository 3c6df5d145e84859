"""Sweeps of small models with real measurements: no call bypasses the gate, and all tests share workers."""

from gated import calls, mlp_file, shared_workers

__all__ = ["calls", "mlp_file", "shared_workers"]
