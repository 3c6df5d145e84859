"""Latency and throughput: source and candidate measured in turn. Read `meter` first."""
