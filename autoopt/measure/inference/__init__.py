"""Running a model over data: inputs, batches, recurrent state. Read `runner` first."""
