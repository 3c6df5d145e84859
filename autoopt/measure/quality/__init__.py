"""Quality of a model's outputs: task metrics, distance to the source model, custom metrics.

Read `meters` first: it runs both models on the same items (`predictions`) and computes metrics from the outputs: `task`
against labels, `fidelity` against the source, `custom` with the user's functions. `classification`, `regression`,
`detection` and `sequences` hold the functions of task metrics.
"""
