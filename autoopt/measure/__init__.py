"""Measuring: latency, quality, memory and size of a candidate beside the source model.

Read `meters` first: it says which worker function measures which metrics. `worker` holds these functions; `latency`,
`quality` and `memory` implement them, with `inference` to run models and `intervals` for confidence intervals. Task
metrics are in `quality`.
"""
