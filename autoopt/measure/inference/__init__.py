"""Running a model over data: which inputs, in which batches, with which recurrent state. Read `runner` first."""
