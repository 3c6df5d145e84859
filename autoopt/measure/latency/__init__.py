"""Latency and throughput of a candidate, measured in turns with the source model.

Read `meter` first: a request goes through four rooms, each entered once. `prepare` finds out what is timed (`subjects`,
`sessions`, `generation`, `executed_graph`), `timing` takes turns until the ratios are certain (`timer`, `throughput`),
`estimate` computes metrics with intervals (`pairs`), and `reply` tells how it went. `busy` protects a measurement from
other programs, whose activity `load` reads.
"""
