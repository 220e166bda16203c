"""Proved models as a benchmark for other verifiers: ONNX networks, VNN-LIB queries, and what is true of each."""
