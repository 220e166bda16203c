"""Integer lists on the command line: 8, 8,16,32 or 8:64:8."""

from __future__ import annotations

import argparse


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
        if len(numbers) == 1:
            values += numbers
        elif len(numbers) in (2, 3) and (step := (*numbers, 1)[2]) > 0 and numbers[0] <= numbers[1]:
            values += range(numbers[0], numbers[1] + 1, step)
        else:
            raise argparse.ArgumentTypeError(f"{text!r} is not a rising range first:last:step")
    if len(values) > 10000:
        raise argparse.ArgumentTypeError(f"{text!r} names {len(values)} values, more than 10000")
    return values
