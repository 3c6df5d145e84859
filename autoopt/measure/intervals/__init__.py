"""Confidence intervals: over the items of a data set, and over replicas of a session."""
