"""Integer lists on the command line: 8, 8,16,32 or 8:64:8."""

from __future__ import annotations

import argparse

MOST = 10_000
LARGEST_N = 500  # of Count01's attention scale N, where the limit on n2 has 218 digits


def integers(text: str) -> list[int]:
    """Reads 8 | 8,16,32 | 8:64:8 (both ends included).

    >>> integers("8:24:8"), integers("5,10"), integers("7")
    ([8, 16, 24], [5, 10], [7])
    """
    values: list[int] = []
    for part in text.split(","):
        try:
            numbers = [int(number) for number in part.split(":")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number, a list 5,10 or a range 8:64:8") from None
        first, last, step = (numbers[0], numbers[-1], 1) if len(numbers) < 3 else numbers[:3]
        if len(numbers) > 3 or step < 1 or last < first:
            raise argparse.ArgumentTypeError(f"{text!r} is not a rising range first:last:step")
        if (named := len(values) + (last - first) // step + 1) > MOST:
            raise argparse.ArgumentTypeError(f"{text!r} names {named} values, more than {MOST}")
        values += range(first, last + 1, step)
    return values
