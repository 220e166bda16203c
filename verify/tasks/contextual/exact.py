"""One string in real arithmetic, operation by operation in balls of any precision: the judge of counterexamples."""

from __future__ import annotations

from functools import reduce

from flint import arb, arb_mat, ctx

from constructions.contextual_counting_arrays import BOS
from verify.arithmetic.arb_matrices import attended, leads, plus_row, relu, stored
from verify.arithmetic.slack import Array

PRECISION = 400


def margins(W: dict[str, Array], tokens: list[int], right: list[int], *, is_causal: bool) -> list[arb]:
    """(logit of the right count) - (largest other logit) for every prompt, as balls.

    Rotations, distances and the decoder's MLP are those of models that store them.
    Shapes: tokens without BOS; right, one count for each prompt.
    """
    with ctx.workprec(PRECISION):
        M = {name: stored(value) for name, value in W.items()}
        row = [BOS, *tokens]
        x = stored(W["E"][row]) + stored(W["positions"][: len(row)])
        queries, keys = x * M["W_Q"], x * M["W_K"]
        if "cosines" in W:
            queries, keys = rotated(queries, W), rotated(keys, W)
        if "slope" in W:
            queries, keys = with_distance(queries, keys, float(W["slope"]))
        x = x + attended(queries, keys, x * M["W_V"], is_causal=is_causal) * M["W_O"]
        x = plus_row(x + relu(plus_row(x * M["W_1"], W["b_1"])) * M["W_2"], W["b_2"])
        z = attended(M["P"] * M["U_Q"], x * M["U_K"], x * M["U_V"], is_causal=False)
        if "W_3" in W:
            z = plus_row(z + relu(plus_row(z * M["W_3"], W["b_3"])) * M["W_4"], W["b_4"])
        logits = plus_row(z * M["W_out"], W["b_out"])
        return [reduce(arb.min, leads(logits, r, k)) for r, k in enumerate(right)]


def rotated(x: arb_mat, W: dict[str, Array]) -> arb_mat:
    """Each pair of coordinates, turned by its place's stored cosine and sine."""
    out = arb_mat(x.nrows(), x.ncols())
    for i in range(x.nrows()):
        for pair in range(x.ncols() // 2):
            c, s = arb(float(W["cosines"][i, pair])), arb(float(W["sines"][i, pair]))
            first, second = x[i, 2 * pair], x[i, 2 * pair + 1]
            out[i, 2 * pair], out[i, 2 * pair + 1] = first * c - second * s, first * s + second * c
    return out


def with_distance(queries: arb_mat, keys: arb_mat, slope: float) -> tuple[arb_mat, arb_mat]:
    """Two more coordinates, (-slope i, slope) and (1, j), whose product is -slope (i - j)."""
    n, e, m = queries.nrows(), queries.ncols(), arb(slope)
    longer_queries, longer_keys = arb_mat(n, e + 2), arb_mat(n, e + 2)
    for i in range(n):
        for a in range(e):
            longer_queries[i, a], longer_keys[i, a] = queries[i, a], keys[i, a]
        longer_queries[i, e], longer_queries[i, e + 1] = -m * i, m
        longer_keys[i, e], longer_keys[i, e + 1] = arb(1), arb(i)
    return longer_queries, longer_keys
