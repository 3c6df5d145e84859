"""Latency and throughput of a candidate, measured in turns with the source model.

Read `meter` first: it opens sessions (`subjects`), times blocks of inferences in pairs (`timing`, `pairs`) until the
ratio is certain (`measurement`), and computes metrics with intervals (`results`). `throughput` adds parallel
inferences, `profiles` several sizes of dynamic shapes, `machine` the state of the machine meanwhile.
"""
