"""Decoding of raw outputs: scores of classes, boxes of detectors, sequences of CTC.

Read `class_axis` first: it finds the axis of the classes, which the metrics need too. `boxes` and `ctc` are the
components `post_process` of a DAG's data.
"""
