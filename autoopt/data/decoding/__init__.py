"""Decoding of raw outputs: class scores, boxes of detectors, sequences of CTC."""
