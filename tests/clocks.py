"""Budgets that tests hand in instead of seconds: none of them knows how fast the machine is."""

from __future__ import annotations

from itertools import count

from verify.frame.clock import Budget


def endless(seconds=30.0):
    """A budget whose clock stands still: a search plans as if it had these seconds, and ends when it is done."""
    return Budget(seconds, lambda: 0.0)


def looks(number, seconds=30.0):
    """A budget that is up after so many looks at its clock, each of which takes the same part of the seconds."""
    ticks = count()
    return Budget(seconds, lambda: next(ticks) * seconds / number)


ENDLESS = endless()
