"""Quality of a model's outputs: task metrics, fidelity to the source model, custom metrics. Read `meters` first."""
