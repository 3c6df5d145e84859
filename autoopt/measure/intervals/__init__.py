"""95 % confidence intervals.

Read `items` first: intervals over the items of a data set, for quality. `replicas` has those over independent
measurements, for latency, and `pooling` joins all measurements of several candidates in one model.
"""
