"""Histogram models in a dtype, every operation rounded, in any order of evaluation."""
