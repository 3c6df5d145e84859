"""Deployable Prefect entry points: one page each, no decisions."""
