"""Histogram models decided by runs: of all sequences, of drawn ones, or in constant-bit arithmetic."""

from verify.arithmetic.readings import ConstantBits
from verify.frame import decide
from verify.tasks.histogram.every_reading import problem


def exhaustive(module):
    return decide.exhaustive(problem(module))


def sampled(module):
    return decide.sampled(problem(module))


def in_bits(module, s, budget=30.0):
    return decide.certify(problem(module), ConstantBits(s), decide.Effort(budget))
