"""What no weights can do in inductive counting: arguments, checks on random models, and exact ceilings of accuracy."""

from collections.abc import Callable

from verify.frame.impossibility import Impossibility
from verify.tasks.inductive.ceilings.homogeneous import equal_start, no_length, no_mask, proportions_only
from verify.tasks.inductive.ceilings.limits import bos_fades, few_bits, few_neurons, stored_bos_fades
from verify.tasks.inductive.ceilings.share import few_waves

ARGUMENTS: dict[str, Callable[[int], Impossibility]] = {
    "C-I1": no_length,
    "C-I2": equal_start,
    "C-I3": proportions_only,
    "C-I4": bos_fades,
    "C-I5": few_neurons,
    "C-I6": few_bits,
    "C-I7": few_waves,
    "C-I8": no_mask,
}

__all__ = ["ARGUMENTS", "stored_bos_fades"]
