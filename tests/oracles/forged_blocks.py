"""What is said of whole blocks of S4, Mamba and RWKV-6, against runs with a hundred digits in sums over all tokens."""

from __future__ import annotations

from functools import cache

import pytest
import safetensors.torch
import torch
from mpmath import mp, mpf
from oracles import residual_blocks
from oracles.rounded_factors import by_the_oracle

from verify.arithmetic.formats import FORMATS

LINE = 5  # tokens of an input that are run


class Blocks:
    """The file's tensors by their names, as the runs read them."""

    def __init__(self, tensors, about):
        self.kind, self.tensors = about["model"].removesuffix(" blocks"), tensors
        self.layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))

    def state_dict(self):
        return self.tensors


@cache
def rows_of(weights, kind, precision, string):
    """The logits after each token, exactly, or in the run of a format that keeps every result and rounds factors."""
    model = Blocks(safetensors.torch.load(weights), {"model": kind})
    if precision is None:
        return residual_blocks.logits(model, string)
    model.tensors = {name: x.to(getattr(torch, precision)) for name, x in model.tensors.items()}
    with pytest.MonkeyPatch.context() as patch, mp.workdps(residual_blocks.DIGITS):
        return by_the_oracle(patch, model, FORMATS[precision], [string])[string]


def gaps_of(weights, c, string, due):
    """(right logit) - (largest other) after each token that is judged, None for others."""
    rows = rows_of(weights, c["parameters"]["model"], c["parameters"].get("precision"), tuple(string))
    found = []
    for t, row in enumerate(rows, 1):
        k = due(string[:t])
        found.append(None if k is None else row[k] - max(x for j, x in enumerate(row) if j != k))
    return found, rows[-1]


def wrong(weights, c, due, say):
    """The counterexample is answered wrongly by its margin, by the class that is named; and it is the first, if so."""
    case, first = c["counterexample"], int(c["parameters"].get("modulus") is not None)
    found, last = gaps_of(weights, c, case["input"], due)
    k, named = due(case["input"]), case["predicted"]
    say(k is not None and case["expected"] == k + first, "expected")
    say(found[-1] <= mpf(c["margin"]) * (1 - mpf(2) ** -80) and c["margin"] <= 0, "its margin")
    say(named is None or named - first != k and last[named - first] == max(last), "predicted")
    is_line = len({*case["input"]}) == 1
    say(not (case.get("is_first") and is_line) or all(gap > 0 for gap in found[:-1]), "is_first")


def right(weights, c, due, say, line):
    """Along a line whose last token goes on, as far as it is run."""
    length = c["length"]
    say(c["margin"] > 0, "margin")
    n = (LINE if length == "all" else min(length, LINE)) + len(line) - 1
    found, _ = gaps_of(weights, c, (*line, *line[-1:] * n)[:n], due)
    say(all(gap is None or gap >= mpf(c["margin"]) for gap in found), "the margin of a line")
