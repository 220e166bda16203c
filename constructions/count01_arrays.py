"""Count01's weights as arrays: the documents' minimal transformer, and those with uniform attention."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

from constructions.errors import BadInput, ProvedImpossible
from constructions.model_arrays import LARGEST, Array, ModelArrays

TOKENS = ("BOS", "0", "1", "2", "=", "4", "5", "EOS")
BOS, ZERO, ONE, TWO, EQUALS, FOUR, FIVE, EOS = range(8)
LABELS = ("majority-ones", "thesis")
NORM_EPSILON = 1e-5  # torch's own


def documents(
    N: int,
    *,
    labels: str = "majority-ones",
    skip: bool = True,
    eps: float = 0.0,
    dtype: str = "float64",
) -> ModelArrays:
    """The documents' minimal transformer: "=" weighs a 1 e times a 0, and y is compared with a.

    Claim: D, App. A; E, Sec. 5.3. Departures: eight readout columns (nine are printed); eps = 0, because
    any other value bounds n0 and n1; labels "thesis" exchanges the columns of 4 and 5 (as printed, E's
    rule is answered the other way round). Without the skip connection the residual 1 leaves the biases.
    Shapes: d = d_h = heads = 1.
    Raises: BadInput for N < 1, unknown labels, or N^2 beyond the dtype.

    >>> float(documents(10).b_out[FOUR])  # -(a + 1)
    -11.731058578630005
    """
    check_labels(labels)
    model = _scalar_model(_documents_embedding(N, dtype), skip, len(TOKENS), dtype)
    threshold = _separating_value(N) + (1 if skip else 0)
    more_ones, rest = (FOUR, FIVE) if labels == "majority-ones" else (FIVE, FOUR)
    model.W_out[0, more_ones], model.b_out[more_ones] = 1, -float(threshold)
    model.W_out[0, rest], model.b_out[rest] = -1, float(threshold + Decimal(eps))
    model.W_out[0, EOS], model.b_out[EOS] = 4, -12 * (N + 1)
    return model.rounded()


def as_printed(N: int, *, eps: float = 0.0, aligned: bool = False, dtype: str = "float64") -> ModelArrays:
    """The readout exactly as both documents print it: nine entries for eight tokens.

    Claim: D, App. A (eps > 0, not given a value); E, Sec. 5.3 (eps = 0). The literal table puts 1, -1, 4 at
    5, EOS and a ninth class; `aligned` drops one of its leading zeros, so that they belong to 4, 5 and EOS.
    Shapes: classes = 9, or 8 when aligned.
    Raises: BadInput as `documents`.

    >>> as_printed(10).W_out.tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, -1.0, 4.0]]
    """
    model = _scalar_model(_documents_embedding(N, dtype), True, 8 if aligned else 9, dtype)
    threshold = _separating_value(N) + 1
    model.W_out[0, -3:] = [1, -1, 4]
    model.b_out[-3:] = [-float(threshold), float(threshold + Decimal(eps)), -12 * (N + 1)]
    return model.rounded()


def uniform(*, labels: str = "majority-ones", skip: bool = True, dtype: str = "float64") -> ModelArrays:
    """Uniform attention: "=" has embedding 0, so y = (n1 - n0 - 1/2) / (n0 + n1 + n2 + 2) has the right sign.

    Claim: W-10 (ours). BOS = -1/2 settles ties; 4 and 5 have embedding 4, so that the stream after them is
    above 3 whatever precedes, while at "=" it is between -1 and 1: the EOS line 4 r - 6 is below 0
    where r < 1 and at least 3 above the answers where r > 3. Every number has at most 3 bits.
    Shapes: d = d_h = heads = 1.
    Raises: BadInput for unknown labels; ProvedImpossible without the skip connection.

    >>> uniform().E[:, 0].tolist()
    [-0.5, -1.0, 1.0, 0.0, 0.0, 4.0, 4.0, 0.0]
    """
    check_labels(labels)
    if not skip:
        raise ProvedImpossible(
            "W-9",
            "skip=False: no single head without the skip connection is right for all n0, n1; keep the skip connection, "
            "or use --construction documents, which is right for a finite range",
        )
    model = _scalar_model([-0.5, -1, 1, 0, 0, 4, 4, 0], True, len(TOKENS), dtype)
    more_ones, rest = (FOUR, FIVE) if labels == "majority-ones" else (FIVE, FOUR)
    model.W_out[0, more_ones], model.W_out[0, rest] = 1, -1
    model.W_out[0, EOS], model.b_out[EOS] = 4, -6
    return model.rounded()


def normed(*, labels: str = "majority-ones", dtype: str = "float64") -> ModelArrays:
    """Uniform attention behind LayerNorm: 1s and 0s are read as 33 and -33, BOS as -16, 2 and "=" as 0.

    Claim: D-2 (ours; D, Sec. 4.1, has one head of dimension 1 "with or without layer norm", and weights without).
    A token is (r, -r, w, -w)/64 with r^2 + w^2 = 65^2: its mean is 0 and all have one variance, so that LayerNorm
    divides them by one number. Equal weights give y = c (33 (n1 - n0) - 16) / (n0 + n1 + n2 + 2) at "=", with the sign
    of n1 - n0 - 1/2 for all counts. 4 and 5 have w = 4 * 65 and r = 0: the EOS line 4 w/64 - 8 is below -3 at "=" and
    above 8 after them, and |y| below 1. All numbers have at most 7 bits.
    Shapes: d = 4, d_h = heads = 1; norm_weight 1, norm_bias 0, norm_eps 1e-5.
    Raises: BadInput for unknown labels.

    >>> normed().E[ONE].tolist()
    [0.515625, -0.515625, 0.875, -0.875]
    """
    check_labels(labels)
    model = zero(d=4, norm=True, dtype=dtype)
    read, loud = (0, 1), (2, 3)  # the lanes of r and -r, of w and -w
    pairs = {BOS: (-16, 63), ZERO: (-33, 56), ONE: (33, 56), FOUR: (0, 260), FIVE: (0, 260)}
    more_ones, rest = (FOUR, FIVE) if labels == "majority-ones" else (FIVE, FOUR)
    for token in range(len(TOKENS)):
        r, w = pairs.get(token, (0, 65))
        model.E[token] = [r / 64, -r / 64, w / 64, -w / 64]
    model.norm_weight[:] = 1
    model.W_V[0, read[0]], model.W_O[0, 0, read[0]] = 1, 1
    model.W_out[read[0], more_ones], model.W_out[read[0], rest] = 1, -1
    model.W_out[loud[0], EOS], model.b_out[EOS] = 4, -8
    return model.rounded()


def check_labels(labels: str) -> None:
    """Raises BadInput unless the label convention is known.

    >>> check_labels("minority")
    Traceback (most recent call last):
    constructions.errors.BadInput: labels='minority': must be majority-ones (4 iff n1 > n0) or thesis (4 iff n0 >= n1)
    """
    if labels not in LABELS:
        raise BadInput(f"labels={labels!r}: must be majority-ones (4 iff n1 > n0) or thesis (4 iff n0 >= n1)")


def _scalar_model(embedding: list[float], skip: bool, classes: int, dtype: str) -> ModelArrays:
    """d = heads = d_h = 1 with K = Q = V = 1."""
    model = zero(skip=skip, classes=classes, dtype=dtype)
    model.E[:, 0] = embedding
    for W in (model.W_Q, model.W_K, model.W_V, model.W_O):
        W[:] = 1
    return model


def _documents_embedding(N: int, dtype: str) -> list[float]:
    if not isinstance(N, int) or isinstance(N, bool) or N < 1:
        raise BadInput(f"N={N!r}: must be an integer of at least 1 (the documents need it large; try --N 10)")
    largest = LARGEST[dtype]
    if largest < N * N or largest < 12 * (N + 1):
        raise BadInput(
            f"N={N}: N^2 = {N * N} exceeds the largest {dtype} {largest:g}; "
            "use a smaller N, a wider dtype, or --construction uniform"
        )
    return [0, N, N + 1, 0, 1, N * N, N * N, 0]


def _separating_value(N: int) -> Decimal:
    """a = (e (N+1) + N) / (1 + e) = N + e / (1 + e), to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        e = Decimal(1).exp()
        return N + e / (1 + e)


def zero(
    *,
    d: int = 1,
    heads: int = 1,
    d_h: int = 1,
    classes: int = 8,
    skip: bool = True,
    norm: bool = False,
    scale: int = 1,
    norm_eps: float = NORM_EPSILON,
    dtype: str,
) -> ModelArrays:
    """A zero Count01Transformer before it is made.

    >>> model = zero(norm=True, heads=2, dtype="float64")
    >>> model.extra_repr() == model.module.extra_repr()
    True
    """
    shapes: dict[str, tuple[int, ...]] = {"E": (len(TOKENS), d), "W_O": (heads, d_h, d)}
    shapes |= {name: (heads, d, d_h) for name in ("W_Q", "W_K", "W_V")}
    shapes |= {"W_out": (d, classes), "b_out": (classes,)} | ({"norm_weight": (d,), "norm_bias": (d,)} if norm else {})
    said = f"d={d}, heads={heads}, d_h={d_h}, skip={skip}, dtype=torch.{dtype}"
    arguments: dict[str, int | float] = {
        "d": d,
        "heads": heads,
        "d_h": d_h,
        "classes": classes,
        "skip": skip,
        "norm": norm,
    }
    arguments |= {"scale": scale, "norm_eps": norm_eps}
    return ModelArrays.zeros(
        "constructions.count01:Count01Transformer",
        dtype,
        arguments,
        shapes,
        has_skip=skip,
        has_norm=norm,
        extra_repr=lambda: said,
    )


def logits_at_counts(model: ModelArrays, n: tuple[int, int, int], last: int) -> Array:
    """Logits after the token `last` of any string with n0, n1, n2 digits, computed in the dtype by numpy.

    Raises: BadInput for a dtype that numpy does not have, and for LayerNorm.

    >>> logits_at_counts(uniform(), (1, 1, 1), EQUALS)[[FOUR, FIVE]].round(6).tolist()
    [-0.1, 0.1]
    """
    counts = np.array([1, *n, 1, 0, 0, 0], np.float64)
    counts[last] = 1
    if model.has_norm or model.dtype == "bfloat16":
        raise BadInput("model: is run by torch, in bfloat16 and behind LayerNorm. Make its module first.")
    E, W_out, b_out, present = (x.astype(model.dtype) for x in (model.E, model.W_out, model.b_out, counts))
    heads = []
    for matrices in zip(model.W_Q, model.W_K, model.W_V, model.W_O, strict=True):
        W_Q, W_K, W_V, W_O = (W.astype(model.dtype) for W in matrices)
        scores = np.where(present > 0, (E @ W_K) @ (E[last] @ W_Q), -np.inf)
        weights = present * np.exp(scores - scores.max())
        heads.append((weights / weights.sum()) @ (E @ W_V) @ W_O)
    attended = np.sum(heads, axis=0)
    stream = E[last] + attended if model.has_skip else attended
    logits: Array = (stream @ W_out + b_out).astype(np.float64)
    return logits
