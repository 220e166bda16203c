"""One string in real arithmetic, operation by operation in balls of any precision: the judge of counterexamples."""

from __future__ import annotations

from functools import reduce

from flint import arb, ctx

from constructions.contextual.transformer import BOS
from verify.arithmetic.arb_matrices import attended, leads, plus_row, relu, stored
from verify.arithmetic.slack import Array

PRECISION = 400


def margins(W: dict[str, Array], tokens: list[int], right: list[int]) -> list[arb]:
    """(logit of the right count) - (largest other logit) for every prompt, as balls.

    Shapes: tokens without BOS; right, one count for each prompt.
    """
    with ctx.workprec(PRECISION):
        M = {name: stored(value) for name, value in W.items()}
        row = [BOS, *tokens]
        x = stored(W["E"][row]) + stored(W["positions"][: len(row)])
        x = x + attended(x * M["W_Q"], x * M["W_K"], x * M["W_V"], is_causal=False) * M["W_O"]
        x = plus_row(x + relu(plus_row(x * M["W_1"], W["b_1"])) * M["W_2"], W["b_2"])
        output = attended(M["P"] * M["U_Q"], x * M["U_K"], x * M["U_V"], is_causal=False)
        logits = plus_row(output * M["W_out"], W["b_out"])
        return [reduce(arb.min, leads(logits, r, k)) for r, k in enumerate(right)]
