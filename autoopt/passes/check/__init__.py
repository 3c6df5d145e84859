"""Analyses that leave a report and never change the model."""
