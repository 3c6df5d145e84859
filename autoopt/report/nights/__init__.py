"""The history of a zoo over its nights: text, page, lasting changes, metrics for Prometheus.

Read `night_history` first: its records are what the others show.
"""
