"""The built constructions of histogram models by name: builder, claim, and which one suits which sizes."""

from __future__ import annotations

from dataclasses import dataclass

from constructions.errors import BadInput, ProvedImpossible

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
    ("lin", "code"): ("fewer_dimensions.code", "W-2"),
    ("lin+sftm", "code"): ("fewer_dimensions.code", "W-2"),
    ("dot", "code"): ("fewer_dimensions.code", "W-2"),
    ("dot", "simplex"): ("fewer_dimensions.simplex", "W-4"),
    ("dot", "coherent"): ("fewer_dimensions.coherent", "A-4.4"),
    ("dot+sftm", "code"): ("fewer_dimensions.code", "W-2"),
    ("bos", "code"): ("fewer_dimensions.code", "W-2"),
    ("bos", "simplex"): ("fewer_dimensions.simplex", "W-4"),
    ("bos", "coherent"): ("fewer_dimensions.coherent", "A-4.4"),
    ("bos+sftm", "sphere"): ("fewer_dimensions.sphere", "W-3"),
    ("bos+sftm", "plane"): ("fewer_dimensions.plane", "W-8"),
    ("bos+sftm", "binary"): ("fewer_dimensions.binary", "A-4.5"),
    ("bos+sftm", "quarter-circle"): ("fewer_dimensions.quarter_circle", "A-rem"),
}


@dataclass(frozen=True)
class Sizes:
    """What a model is asked to have; None leaves d or p to the construction."""

    model: str
    T: int
    L: int
    d: int | None = None
    p: int | None = None


def chosen(sizes: Sizes, construction: str | None) -> str:
    """The named construction, or the one that suits the sizes.

    Raises: ProvedImpossible where no weights of these sizes count; BadInput for a construction the model has not.

    >>> chosen(Sizes("dot", 32, 10), None), chosen(Sizes("bos+sftm", 32, 10, d=3), None)
    ('relation', 'sphere')
    """
    check_possible(sizes, construction)
    name = construction or default_construction(sizes)
    if (sizes.model, name) not in CONSTRUCTIONS:
        known = ", ".join(c for m, c in CONSTRUCTIONS if m == sizes.model)
        raise BadInput(f"construction={name}: there is none for {sizes.model}. Use --construction {known}.")
    return name


def check_possible(sizes: Sizes, construction: str | None) -> None:
    """One neuron cannot count without BOS where the mixing weights do not grow with the sequence (W-5)."""
    is_one_neuron = sizes.p == 1 or construction == "relation"
    if sizes.model in ("lin", "lin+sftm", "dot+sftm") and is_one_neuron and sizes.L >= 2:
        raise ProvedImpossible(
            "W-5",
            f"model={sizes.model}, p=1: proved impossible for every d, T >= 2 and L >= 2: one more of the own token "
            f"moves the neuron up for one token and down for another. Use --p {sizes.T}, or --model bos.",
        )


def default_construction(sizes: Sizes) -> str:
    """The first construction of the model that has the asked d and p."""
    known = [construction for model, construction in CONSTRUCTIONS if model == sizes.model]
    has_neuron_per_token = sizes.p is not None and sizes.p >= sizes.T
    if sizes.d is not None and sizes.d < sizes.T:
        if sizes.model == "bos+sftm":
            return "plane" if sizes.d == 2 else "sphere"
        if known[0] == "inventory" or has_neuron_per_token:
            return "code"
        return "simplex" if sizes.d == sizes.T - 1 else known[0]
    return "inventory" if "inventory" in known and has_neuron_per_token else known[0]


def storage(precision: str) -> str:
    """The dtype in which a builder makes weights for a precision: its own where torch builds with it."""
    return precision if precision in DTYPES else "float32" if precision in ("tf32", "e4m3", "e5m2") else "float64"
