"""Histogram models with fewer dimensions than tokens, by the sizes the command line asks for.

The weights as arrays.
"""

from __future__ import annotations

import numpy as np

from constructions import coded_relation
from constructions.coded_inventory import CARRIER, on_code, on_frame
from constructions.coded_relation import (
    derived_kappa,
    printed_softmax_code,
    sharp_kappa,
    signed_simplex,
    softmax_code,
    tagged_softmax_code,
)
from constructions.codes import library as code_library
from constructions.codes import tokens as token_codes
from constructions.errors import BadInput
from constructions.frames.choice import low_coherence
from constructions.histogram_arrays import HistogramArrays
from constructions.histogram_sizes import check_memory, check_sizes
from constructions.model_arrays import UNITS, Array
from constructions.progress import Progress

INVENTORY, RELATION, SOFTMAX = tuple(CARRIER), ("dot", "bos"), ("bos+sftm",)
FRAMED = ("lin", "lin+sftm", *RELATION)
WIDEST_BASE = 64  # up to which every base is tried
# Printed in the document's experiments for the binary and the quarter-circle code.
PRINTED_ALPHA, PRINTED_KAPPA = 0.01, {"binary": 200.0, "quarter-circle": 30000.0}


def code(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
    progress: Progress | None = None,
) -> HistogramArrays:
    """Inventory counting (p >= T) on the best code that is kept or found for d dimensions.

    Claim: A-4.4 and A-C.3.2 as sizes, W-2 as the condition on the code.
    Shapes: see HistogramTransformer.
    Raises: NotKnown when no code is found, with the best gap; BadInput for p < T.

    >>> code("dot", T=4, L=10, d=8).predict([2, 0, 2, 1, 1, 1, 3, 3, 3, 3])
    [2, 1, 2, 3, 3, 3, 4, 4, 4, 4]
    """
    _check(model, INVENTORY, T, L, d, p)
    d, p = T if d is None else d, T if p is None else p
    if p < T:
        raise BadInput(f"p={p}: counting on a code needs p >= T (one neuron per token), got T={T}. Use --p {T}.")
    found = code_library.find(CARRIER[model], T, L, d, seed=seed, progress=progress)
    return on_code(model, found, L=L, p=p, dtype=dtype)


def simplex(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
) -> HistogramArrays:
    """dot or bos with p = 1 at d = T - 1, on the signed simplex.

    Claim: W-4.
    Raises: NotKnown for odd T or L too large; BadInput for another d.

    >>> simplex("dot", T=6, L=3, d=5).d
    5
    """
    _check(model, RELATION, T, L, d, p)
    d, p = T - 1 if d is None else d, 1 if p is None else p
    if d != T - 1:
        raise BadInput(f"d={d}: the signed simplex has d = T - 1. Use --d {T - 1}, or --p {T} for a code.")
    return signed_simplex(model, T=T, L=L, p=p, dtype=dtype)


def coherent(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
    progress: Progress | None = None,
) -> HistogramArrays:
    """Counts on the frame of lowest coherence known here: with p = 1 in dot and bos, or one neuron per token.

    With p = 1 the frame has d - 1 dimensions, and M < 1/(2L - 3) is enough. With p >= T it has d: in lin and lin+sftm
    D_ts = 1 - M_ts, so the same M is enough; in dot and bos D_ts = 1 - M_ts^2, so M < 1/sqrt(L - 1) is.

    Claim: A-4.4; with p >= T as a case of W-2.
    Raises: NotKnown when the coherence is not below that; BadInput for d < 3 with p = 1, and for 1 < p < T in lin.

    >>> coherent("dot", T=6, L=3, d=6).predict([2, 0, 2])
    [2, 1, 2]
    >>> coherent("lin", T=6, L=2, d=3).predict([2, 0])
    [1, 1]
    """
    _check(model, FRAMED, T, L, d, p)
    d, p = T if d is None else d, (1 if model in RELATION else T) if p is None else p
    if p >= T > 1 or model not in RELATION:
        if p < T:
            raise BadInput(
                f"p={p}: {model} counts on a frame with p >= T (one neuron per token), got T={T}. Use --p {T}."
            )
        return on_frame(model, low_coherence(T, d, seed=seed, progress=progress).vectors, L=L, p=p, dtype=dtype)
    if d < 3:
        raise BadInput(f"d={d}: vectors in d - 1 dimensions and one counting direction need d >= 3. Use a larger --d.")
    H = token_codes.hadamard(T) if d == T else None
    simplex = None if H is None else H[:, 1:]  # in whole numbers
    v = low_coherence(T, d - 1, seed=seed, progress=progress).vectors if simplex is None else simplex
    return coded_relation.coherent(model, v, L=L, p=p, dtype=dtype)


def sphere(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
    progress: Progress | None = None,
) -> HistogramArrays:
    """bos+sftm with one neuron on the best spherical code of d - 1 dimensions: d = 3 is the circle.

    Claim: W-3.
    Raises: BadInput for d < 3 with T > 2.

    >>> sphere("bos+sftm", T=8, L=4, d=3).predict([7, 0, 7, 7])
    [3, 1, 3, 3]
    """
    _check(model, SOFTMAX, T, L, d, p)
    d, p = T if d is None else d, 1 if p is None else p
    if d < 3 and T > 2:
        raise BadInput(f"d={d}: a code on the sphere of R^(d-1) needs d >= 3 for T={T} tokens. Use --d 3.")
    if d == 3 and T <= token_codes.LATTICE_TOKENS and UNITS.get(dtype, 1.0) <= 2.0**-11:  # its numbers have 11 bits
        v = token_codes.lattice_circle(T)
        return softmax_code(v, L=L, p=p, dtype=dtype, kappa=sharp_kappa(v), norm=token_codes.LATTICE_NORM)
    v = token_codes.circle(T) if d == 3 else token_codes.spread_out(T, d - 1, seed=seed, progress=progress)
    return softmax_code(v, L=L, p=p, dtype=dtype)


def plane(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
    progress: Progress | None = None,
) -> HistogramArrays:
    """bos+sftm with one neuron at d = 2, on searched tokens that the neuron reads differently.

    Claim: W-8.
    Raises: NotKnown when no such tokens are found, with the gap reached; BadInput for another d.

    >>> plane("bos+sftm", T=3, L=2, d=4)
    Traceback (most recent call last):
    constructions.errors.BadInput: d=4: the plane has d = 2. Use --d 2, or --construction sphere.
    """
    _check(model, SOFTMAX, T, L, d, p)
    d, p = 2 if d is None else d, 1 if p is None else p
    if d != 2:
        raise BadInput(f"d={d}: the plane has d = 2. Use --d 2, or --construction sphere.")
    from constructions import planar_relation

    return planar_relation.plane(T=T, L=L, p=p, dtype=dtype, seed=seed, progress=progress)


def binary(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    as_printed: bool = False,
) -> HistogramArrays:
    """bos+sftm with one neuron on the binary code: d = ceil(log2(T + 1)) + 2, the rest zero padding.

    Claim: A-4.5; `as_printed` takes alpha = 0.01 and kappa = 200.
    Raises: BadInput when d is too small.

    >>> binary("bos+sftm", T=7, L=4).d
    5
    """
    _check(model, SOFTMAX, T, L, d, p)
    v = token_codes.binary(T) if as_printed else token_codes.signs(T)
    kappa = None if as_printed else sharp_kappa(v)
    return _tagged("binary", v, L=L, d=d, p=p, dtype=dtype, as_printed=as_printed, kappa=kappa)


def digits(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
) -> HistogramArrays:
    """bos+sftm with one neuron on digits in the base that needs the lowest temperature of those that fit into d.

    A digit is an angle in two dimensions, or a sign in base 2; one more dimension is read. Base T is the circle.

    Claim: W-23 (ours), which is W-3 on these codes.
    Raises: BadInput when d is too small.

    >>> digits("bos+sftm", T=32, L=4, d=5).predict([7, 31, 7, 7])
    [3, 1, 3, 3]
    """
    _check(model, SOFTMAX, T, L, d, p)
    p, d = 1 if p is None else p, T.bit_length() + 1 if d is None else d
    codes = [token_codes.digits(T, base) for base in sorted({T, *range(2, min(T, WIDEST_BASE) + 1)} - {1})]
    fitting = [v for v in codes if v.shape[1] < d]
    if not fitting:
        least = 1 + min(v.shape[1] for v in codes)
        raise BadInput(f"d={d}: digits of T={T} tokens and one direction to read need d >= {least}. Use --d {least}.")
    v = min(fitting, key=lambda v: (round(derived_kappa(v, L), 6), v.shape[1]))
    return softmax_code(np.pad(v, ((0, 0), (0, d - 1 - v.shape[1]))), L=L, p=p, dtype=dtype)


def quarter_circle(
    model: str,
    *,
    T: int,
    L: int,
    d: int | None = None,
    p: int | None = None,
    dtype: str = "float32",
    as_printed: bool = False,
) -> HistogramArrays:
    """bos+sftm with one neuron on the quarter circle: d = 4, the rest zero padding.

    Claim: A-rem; `as_printed` takes alpha = 0.01 and kappa = 30000.
    Raises: BadInput when d is too small.

    >>> quarter_circle("bos+sftm", T=7, L=4).d
    4
    """
    _check(model, SOFTMAX, T, L, d, p)
    v = token_codes.quarter_circle(T)
    return _tagged("quarter-circle", v, L=L, d=d, p=p, dtype=dtype, as_printed=as_printed)


def _tagged(
    name: str,
    v: Array,
    *,
    L: int,
    d: int | None,
    p: int | None,
    dtype: str,
    as_printed: bool,
    kappa: float | None = None,
) -> HistogramArrays:
    T, least = len(v), v.shape[1] + 2
    d, p = least if d is None else d, 1 if p is None else p
    if d < least:
        raise BadInput(f"d={d}: the {name} code of T={T} tokens needs d >= {least}. Use --d {least}.")
    v = np.pad(v, ((0, 0), (0, d - least)))
    if as_printed:
        return printed_softmax_code(v, L=L, p=p, dtype=dtype, kappa=PRINTED_KAPPA[name], alpha=PRINTED_ALPHA)
    return tagged_softmax_code(v, L=L, p=p, dtype=dtype, kappa=kappa)


def _check(model: str, known: tuple[str, ...], T: int, L: int, d: int | None, p: int | None) -> None:
    """Raises BadInput for sizes that make no sense, or a model that the construction is not for."""
    check_sizes(model, T=T, L=L, d=1 if d is None else d, p=1 if p is None else p)
    check_memory(T * (T.bit_length() if d is None else d) + L * (1 if p is None else p))  # at least
    if model not in known:
        raise BadInput(f"model={model!r}: this construction is for {', '.join(known)}. Choose one of them.")
