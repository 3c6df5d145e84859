"""Quality of a model's outputs: task metrics, distance to the source model, custom metrics.

Read `meters` first: it runs both models on the same items (`predictions`) and computes metrics from the outputs: `task`
against labels, `custom` with the user's functions. `classification` (also of frames and pixels), `regression` (also of
signals), `detection`, `sequences` and `embeddings` hold the functions of task metrics. `source_comparison` is the meter
for data without labels: it tells what each output stands for (`output_kinds`) and computes `agreement` and `fidelity`.
"""
