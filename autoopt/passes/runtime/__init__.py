"""Settings for the runtime; the graph stays unchanged."""
