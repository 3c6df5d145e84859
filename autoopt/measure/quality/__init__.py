"""Quality of a model's outputs: task metrics, distance to the source model, custom metrics.

Read `meters` first: it runs both models on the same items (`predictions`) and computes metrics from the outputs: `task`
against labels, or with the user's functions. `classification` (also of frames and pixels), `detection`,
`sequences` and `vectors` hold the functions of task metrics. `fidelity` is the meter for data without labels: it tells
what each output stands for (`output_kinds`) and computes `agreement` and distances.
"""
