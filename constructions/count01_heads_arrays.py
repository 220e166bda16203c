"""Arrays of Count01 models built for what their heads show: separation on N^3 by d_h, heads that need each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from constructions.count01_arrays import BOS, EOS, FIVE, FOUR, ONE, TOKENS, TWO, ZERO, zero
from constructions.errors import BadInput
from constructions.model_arrays import ModelArrays

LANE, END = 0, 1  # of the residual: where the heads write their verdict, and where 4 and 5 announce the end


def counting_pair(*, dtype: str = "float64") -> ModelArrays:
    """Two heads that need each other: one says the share of 0s, the other that of 1s, and the readout compares them.

    Claim: H-4; D, Sec. 6.1 names it as an example without weights. Both attend uniformly, so with n = n0 + n1 + n2
        the readout sees (n1 - 1/2 - n0) / (n + 2): BOS carries -1/2, which settles ties. Neither head alone
        separates any box. Every number has at most 3 bits.
    Shapes: d = 4, heads = 2, d_h = 1.

    >>> counting_pair().W_O[:, 0, LANE].tolist()
    [-1.0, 1.0]
    """
    return _written([{ZERO: [1.0]}, {ONE: [1.0], BOS: [-0.5]}], [[-1.0], [1.0]], dtype)


def interval_pair(*, M: int, dtype: str = "float64") -> ModelArrays:
    """Two heads that need each other: one separates where there are at most M - 1 2s, the other from there to 2M - 2.

    Claim: H-6; D, Sec. 6.1 names it as an example without weights. Both attend uniformly and say n1 - n0, the first
        with (n2 - M + 1/2) / M more, the second with (M - 1 - n2) / M more, each over n0 + n1 + n2 + 2. Where that is
        in (-1, 0] the head is right; the sum is 2 (n1 - n0) - 1/(2M), which is right at all counts.
    Shapes: d = 4, heads = 2, d_h = 1.
    Raises: BadInput for M that is no power of two up to 2^10: shares of 1/(2M) are stored exactly.

    >>> interval_pair(M=8).E[TWO].tolist()
    [0.0, 0.0, 0.125, -0.125]
    """
    if isinstance(M, bool) or not isinstance(M, int) or not 2 <= M <= 1 << 10 or M & (M - 1):
        raise BadInput(f"M={M!r}: must be a power of two from 2 to {1 << 10}")
    few = {ZERO: [-1.0], ONE: [1.0], TWO: [1 / M], BOS: [(0.5 - M) / M]}
    many = {ZERO: [-1.0], ONE: [1.0], TWO: [-1 / M], BOS: [(M - 1) / M]}
    return _written([few, many], [[1.0], [1.0]], dtype)


def uniform_head(values: Mapping[str, Sequence[float]], readout: Sequence[float]) -> ModelArrays:
    """One head that attends uniformly, with any value vectors for BOS, 0, 1, 2 and "=", and a readout of its output.

    Claim: H-1: it separates n1 > n0 on all of N^3 if and only if some (w, b) has s_1 = -s_0 = 1, s_2 = 0 and
        -1 < s_BOS + s_= <= 0, where s_t = w . v_t + b.
    Shapes: values: d_h numbers for each token, zero where none are given; readout (d_h,).
    Raises: BadInput for an unknown token, or vectors of different lengths.

    >>> uniform_head({"BOS": [-0.5], "0": [-1], "1": [1]}, [1.0]).E[:3, 2].tolist()
    [-0.5, -1.0, 1.0]
    """
    unknown = sorted(set(values) - set(TOKENS))
    if unknown:
        raise BadInput(f"values: {unknown[0]!r} is no token; there are {', '.join(TOKENS)}")
    if any(len(v) != len(readout) for v in values.values()) or not readout:
        raise BadInput(f"values: all must have the length of readout={list(readout)}, at least 1")
    by_token = {TOKENS.index(token): [float(x) for x in v] for token, v in values.items()}
    return _written([by_token], [[float(x) for x in readout]], "float64")


def _written(values: list[dict[int, list[float]]], readout: list[list[float]], dtype: str) -> ModelArrays:
    """Uniform attention; head h reads `values[h]` and writes readout[h] . (its output) where 4 and 5 are compared."""
    d_h = len(readout[0])
    first = 2  # the residual's lanes for values, after LANE and END
    model = zero(d=first + len(values) * d_h, heads=len(values), d_h=d_h, dtype=dtype)
    for h, (by_token, weights) in enumerate(zip(values, readout, strict=True)):
        for k in range(d_h):
            lane = first + h * d_h + k
            for token, vector in by_token.items():
                model.E[token, lane] = vector[k]
            model.W_V[h, lane, k] = 1
            model.W_O[h, k, LANE] = weights[k]
    model.E[FOUR, END] = model.E[FIVE, END] = 4
    model.W_out[LANE, FOUR], model.W_out[LANE, FIVE] = 1, -1
    model.W_out[END, EOS], model.b_out[EOS] = 4, -6
    return model.rounded()
