"""Latency and throughput of a candidate, measured in turns with the source model.

Read `meter` first: a request goes through four rooms, each entered once. `prepare` finds out what is timed
(`generation`, `executed_graph`), `timing` takes turns until the ratios are certain (`timer`, `throughput`,
`comparison`), `estimate` computes metrics with intervals, and `reply` tells how it went. `busy` reads the load of other
programs and protects a measurement from them.
"""
