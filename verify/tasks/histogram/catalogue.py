"""The built constructions of histogram models by name: builder, claim, and which one suits which sizes."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING

from bounds.even_readings import fewest_in_the_regime
from bounds.exact_laws import (
    fewest_dimensions_of_blocks,
    fewest_dimensions_of_one_neuron,
    fewest_neurons,
    lin_needs_dimensions,
    lin_needs_neurons,
)
from constructions.errors import BadInput, NotKnown, ProvedImpossible

if TYPE_CHECKING:
    from constructions.histogram_arrays import HistogramArrays

MODELS = ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm")
DTYPES = ("float64", "float32", "bfloat16", "float16")

# (model, construction) -> builder and claim; the first construction of a model is its default.
CONSTRUCTIONS = {
    ("lin", "inventory"): ("inventory_counting.lin", "A-4.3"),
    ("lin+sftm", "inventory"): ("inventory_counting.lin_sftm", "A-4.3"),
    ("dot", "relation"): ("relation_counting.dot", "A-4.2"),
    ("dot", "inventory"): ("inventory_counting.dot", "W-1"),
    ("dot+sftm", "inventory"): ("inventory_counting.dot_sftm", "A-B.1"),
    ("bos", "relation"): ("relation_counting.bos", "A-4.1"),
    ("bos", "zero-bos"): ("relation_counting.zero_bos", "A-4.1alt"),
    ("bos", "inventory"): ("inventory_counting.bos", "W-1"),
    ("bos+sftm", "relation"): ("relation_counting.bos_sftm", "A-4.1"),
    ("bos+sftm", "inventory"): ("inventory_counting.bos_sftm", "W-1"),
    # fewer dimensions than tokens
    ("lin", "balanced"): ("exact_laws.balanced", "W-15"),
    ("lin", "code"): ("fewer_dimensions.code", "W-2"),
    ("lin", "coherent"): ("fewer_dimensions.coherent", "A-4.4"),
    ("lin+sftm", "balanced"): ("exact_laws.balanced", "W-15"),
    ("lin+sftm", "code"): ("fewer_dimensions.code", "W-2"),
    ("lin+sftm", "coherent"): ("fewer_dimensions.coherent", "A-4.4"),
    ("dot", "code"): ("fewer_dimensions.code", "W-2"),
    ("dot", "simplex"): ("fewer_dimensions.simplex", "W-4"),
    ("dot", "rational"): ("exact_laws.rational", "W-14"),
    ("dot", "coherent"): ("fewer_dimensions.coherent", "A-4.4"),
    ("dot+sftm", "logarithmic"): ("exact_laws.logarithmic", "W-13"),
    ("dot+sftm", "code"): ("fewer_dimensions.code", "A-C.3.2"),
    ("bos", "code"): ("fewer_dimensions.code", "W-2"),
    ("bos", "simplex"): ("fewer_dimensions.simplex", "W-4"),
    ("bos", "rational"): ("exact_laws.rational", "W-14"),
    ("bos", "coherent"): ("fewer_dimensions.coherent", "A-4.4"),
    ("bos+sftm", "sphere"): ("fewer_dimensions.sphere", "W-3"),
    ("bos+sftm", "plane"): ("fewer_dimensions.plane", "W-8"),
    ("bos+sftm", "binary"): ("fewer_dimensions.binary", "A-4.5"),
    ("bos+sftm", "quarter-circle"): ("fewer_dimensions.quarter_circle", "A-rem"),
    ("bos+sftm", "digits"): ("fewer_dimensions.digits", "W-23"),
}


@dataclass(frozen=True)
class SizesAsked:
    """The sizes that are asked for. None leaves d or p to the construction."""

    model: str
    T: int
    L: int
    d: int | None = None
    p: int | None = None


def chosen(sizes: SizesAsked, construction: str | None) -> str:
    """The named construction, or the one that suits the sizes.

    Raises: ProvedImpossible where no weights of these sizes count; BadInput for a construction the model has not.

    >>> chosen(SizesAsked("dot", 32, 10), None), chosen(SizesAsked("bos+sftm", 32, 10, d=3), None)
    ('relation', 'sphere')
    """
    check_possible(sizes, construction)
    name = construction or default_construction(sizes)
    if (sizes.model, name) not in CONSTRUCTIONS:
        known = ", ".join(c for m, c in CONSTRUCTIONS if m == sizes.model)
        raise BadInput(f"construction={name}: there is none for {sizes.model}. Use --construction {known}.")
    return name


def check_possible(sizes: SizesAsked, construction: str | None) -> None:
    """Raises ProvedImpossible for sizes at which no weights at all count (W-5, W-16 to W-18, W-24)."""
    is_one_neuron = sizes.p == 1 or construction == "relation"
    T, L, d, p = sizes.T, sizes.L, sizes.d, sizes.p
    if sizes.model in ("lin", "lin+sftm", "dot+sftm") and is_one_neuron and sizes.L >= 2:
        raise ProvedImpossible(
            "W-5",
            f"model={sizes.model}, p=1: proved impossible for every d, T >= 2 and L >= 2: one more of the own token "
            f"moves the neuron up for one token and down for another. Use --p {sizes.T}, or --model bos.",
        )
    if sizes.model in ("lin+sftm", "dot+sftm") and p is not None and p < fewest_neurons(T) and L >= 2:
        raise ProvedImpossible(
            "W-16",
            f"model={sizes.model}, p={p}: proved impossible for every d and L >= 2 at T={T}: each token needs a set of "
            f"neurons of its own, and 2^p - 1 < T. Use --p {fewest_neurons(T)} or more.",
        )
    if sizes.model in ("lin", "lin+sftm"):
        _check_possible_in_lin(sizes)
    if sizes.model not in ("dot", "bos") or p != 1 or d is None:
        return
    least = fewest_dimensions_of_one_neuron(T, L)
    if d < least:
        raise ProvedImpossible(
            "W-17" if L >= T // 2 + 1 else "W-18",
            f"model={sizes.model}, p=1, d={d}: proved impossible at T={T}, L={L}: one neuron needs d >= {least}. "
            f"Use --d {T - 1}, or --p {T}.",
        )


def _check_possible_in_lin(sizes: SizesAsked) -> None:
    """Raises ProvedImpossible for fewer neurons or dimensions than long sequences need (W-24)."""
    T, L, d, p = sizes.T, sizes.L, sizes.d, sizes.T if sizes.p is None else sizes.p
    if p < T and lin_needs_neurons(T, L):
        raise ProvedImpossible(
            "W-24",
            f"model={sizes.model}, p={p}: proved impossible for every d at T={T}, L={L}: so long a sequence needs a "
            f"neuron per token. Use --p {T}.",
        )
    if d is not None and d < T - 1 and lin_needs_dimensions(T, L, p):
        raise ProvedImpossible(
            "W-24",
            f"model={sizes.model}, d={d}, p={p}: proved impossible at T={T}, L={L}: so long a sequence needs "
            f"d >= {T - 1}. Use --d {T - 1}.",
        )


def check_known(sizes: SizesAsked, construction: str) -> None:
    """Raises NotKnown where no code counts with one neuron per token, which other weights may still do (W-18)."""
    model, T, L, d = sizes.model, sizes.T, sizes.L, sizes.d
    if construction != "code" or model == "dot+sftm" or d is None:
        return
    least = fewest_in_the_regime(model, T, L)
    if d < least:
        raise NotKnown(
            f"d={d}: no weights are known. Where each neuron stays on one side for counts 1 and 2 of a token, or only "
            f"one changes, {model} at T={T}, L={L} is proved to need d >= {least} (W-18); no other weights are known, "
            f"nor proved impossible. Use --d {least} or more."
        )


def default_construction(sizes: SizesAsked) -> str:
    """The first construction of the model that has the asked d and p."""
    known = [construction for model, construction in CONSTRUCTIONS if model == sizes.model]
    T, L, d, p = sizes.T, sizes.L, sizes.d, sizes.p
    has_neuron_per_token = p is not None and p >= T
    if sizes.model == "dot+sftm" and p is not None and p < T:
        return "logarithmic"
    if sizes.model in ("lin", "lin+sftm") and d is not None and L >= 2 and fewest_dimensions_of_blocks(T, L) <= d < T:
        return "balanced"
    if sizes.d is not None and sizes.d < sizes.T:
        if sizes.model == "bos+sftm":
            return "plane" if sizes.d == 2 else "sphere"
        if known[0] == "inventory" or has_neuron_per_token:
            return "code"
        if d != T - 1:
            return known[0]
        return "simplex" if T % 2 == 0 and 2 * L - 3 < T - 1 else "rational"
    return "inventory" if "inventory" in known and has_neuron_per_token else known[0]


def choices(model: str, construction: str) -> Set[str]:
    """The names of what the builder of a construction takes.

    >>> "basis" in choices("bos", "relation"), "basis" in choices("bos", "code")
    (True, False)
    """
    return signature(_builder(model, construction)).parameters.keys()


def _builder(model: str, construction: str) -> Callable[..., HistogramArrays]:
    module, function = CONSTRUCTIONS[model, construction][0].split(".")
    build: Callable[..., HistogramArrays] = getattr(import_module(f"constructions.{module}_arrays"), function)
    return build


def built(sizes: SizesAsked, construction: str, dtype: str, **asked: object) -> HistogramArrays:
    """The weights of a construction as arrays, with those of the asked choices that its builder takes.

    >>> built(SizesAsked("bos", 4, 3), "relation", "float32").d
    4
    """
    takes = choices(sizes.model, construction)
    options = {name: value for name, value in ({"model": sizes.model} | asked).items() if name in takes}
    build = _builder(sizes.model, construction)
    return build(T=sizes.T, L=sizes.L, d=sizes.d, p=sizes.p, dtype=dtype, **options)


def storage(precision: str) -> str:
    """The dtype in which a builder makes weights for a precision: its own where torch builds with it."""
    return precision if precision in DTYPES else "float32" if precision in ("tf32", "e4m3", "e5m2") else "float64"
