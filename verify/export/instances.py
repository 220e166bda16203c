"""The benchmark set: what is asked of which network, and the answer that is proved here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from constructions import inventory_counting, parity, relation_counting
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from verify.export.networks import histogram_network, scalar_network
from verify.export.queries import Query, one_hot_box
from verify.export.scalar import ScalarLayer
from verify.frame.certificate import Certificate, Verdict

UNSAT, SAT = "unsat", "sat"
MOST_POINTS = 4096
WIDTH = 4  # of embeddings: its root is whole
BUILDERS = {
    "lin": inventory_counting.lin,
    "lin+sftm": inventory_counting.lin_sftm,
    "dot": relation_counting.dot,
    "dot+sftm": inventory_counting.dot_sftm,
    "bos": relation_counting.bos,
    "bos+sftm": relation_counting.bos_sftm,
}
QUARTER, HALF, STEP = Fraction(1, 4), Fraction(1, 2), Fraction(1, 1 << 10)
RADII = {"quarter": QUARTER, "almost": HALF - STEP, "tie": HALF, "beyond": HALF + STEP}
SCALAR_COUNTS = (4, 8, 16)  # longest counts of the parity layers
LARGE = 1 << 25  # float32 loses 1 beside it


@dataclass(frozen=True)
class Instance:
    """A network, a query, and its proved answer; `is_exact_only` where running in float32 gives another one."""

    name: str
    network: bytes
    query: Query
    answer: str
    why: str
    facts: dict[str, object]
    is_exact_only: bool = False


def check_size(T: int, L: int) -> None:
    """Raises: BadInput where the sequences are too many to be written down."""
    if not 2 <= T <= WIDTH:
        raise BadInput(f"T={T}: must be from 2 to {WIDTH}, as the models have {WIDTH} dimensions")
    if not L >= 2 or T**L > MOST_POINTS:
        raise BadInput(f"L={L}: {T}^{L} sequences are written down, and must be from {T}^2 to {MOST_POINTS}")


def instances(T: int, L: int) -> Iterator[Instance]:
    """Yields all instances: every histogram model, right and spoilt, at each count; broken lines; and what float32 gets
    wrong.

    Raises: BadInput where the sequences are too many to be written down.
    """
    check_size(T, L)
    for model in BUILDERS:
        yield from counting(model, T, L)
    for longest in SCALAR_COUNTS:
        yield from broken_lines(longest)
    yield from lost_in_float32()


def counting(model: str, T: int, L: int) -> Iterator[Instance]:
    """Is the count at a position ever wrong where it is k? Unsat as built, sat when spoilt at k."""
    from verify.python.public import certify

    right = BUILDERS[model](T=T, L=L, d=WIDTH)
    proof, network = certify(right), histogram_network(right)
    if not proof:
        raise AssertionError(f"{model} at T={T}, L={L}: {proof}")
    for k in range(1, L + 1):
        name = f"{model.replace('+', '-')}_T{T}_L{L}_count{k}"
        position = k - 1
        yield _counting(f"{name}_built", right, network, proof, position, k, UNSAT, "proved on all sequences")
        spoilt = BUILDERS[model](T=T, L=L, d=WIDTH)
        with torch.no_grad():
            spoilt.b_2[k - spoilt.first_count] -= 2
        refuted = certify(spoilt)
        found = refuted.counterexample
        if refuted.verdict is not Verdict.REFUTED or found is None or found["expected"] != k:
            raise AssertionError(f"{model} spoilt at {k}: {refuted}")
        why = f"counterexample {found['tokens']} at position {found['position']}, replayed"
        yield _counting(
            f"{name}_spoilt", spoilt, histogram_network(spoilt), refuted, found["position"], k, SAT, why
        )  # fmt: skip


def _counting(
    name: str,
    module: HistogramTransformer,
    network: bytes,
    certificate: Certificate,
    position: int,
    k: int,
    answer: str,
    why: str,
) -> Instance:
    T, L, classes = module.T, module.L, len(module.b_2)
    sequences = [x for x in product(range(T), repeat=L) if x.count(x[position]) == k]
    right = position * classes + k - module.first_count
    others = tuple(i for i in range(position * classes, (position + 1) * classes) if i != right)
    query = Query((L, T), (L, classes), tuple(one_hot_box(x, T) for x in sequences), right, others)
    facts = {
        "model": module.model,
        "T": T,
        "L": L,
        "d": module.d,
        "p": module.p,
        "position": position,
        "count": k,
        "margin": certificate.margin,
        "certificate": certificate.to_dict(),
    }
    return Instance(name, network, query, answer, why, facts)


def broken_lines(longest: int) -> Iterator[Instance]:
    """The parity layer on one real number around a count: right up to half a count away, and a tie there."""
    layer = parity_layer(longest)
    exact, network = ScalarLayer.of(*layer), scalar_network(*layer)
    k = longest // 2
    right = k % 2
    for word, radius in RADII.items():
        low, high = k - radius, k + radius
        margin, place = exact.least_margin(low, high, right)
        answer = UNSAT if margin > 0 else SAT
        why = f"least margin {margin} at {place}, by exact evaluation at the ends and bends of broken lines"
        facts = {"neurons": len(exact.slopes), "count": k, "margin_exact": str(margin), "at": str(place)}
        yield Instance(
            f"parity_layer_up_to_{longest}_{word}", network, scalar_query(low, high, right), answer, why, facts,
        )  # fmt: skip


def parity_layer(longest: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The ReLU layer of a parity model, reading the count alone."""
    built = parity.sawtooth(T=1, L=longest, dtype=torch.float32)
    # the mixed token holds 1 + count in its last dimension
    return built.W_1[-1].detach(), (built.b_1 + built.W_1[-1]).detach(), built.W_2.detach(), built.b_2.detach()


def scalar_query(low: Fraction, high: Fraction, right: int) -> Query:
    return Query((1, 1), (1, 2), (((low, high),),), right, (1 - right,))


def lost_in_float32() -> Iterator[Instance]:
    """relu(M x + 1) - relu(M x) against 1/2 on [1, 2]: 1 in real arithmetic, 0 where M x + 1 is rounded to M x."""
    layer = (
        torch.tensor([float(LARGE)] * 2),
        torch.tensor([1.0, 0.0]),
        torch.tensor([[1.0, 0.0], [-1.0, 0.0]]),
        torch.tensor([0.0, 0.5]),
    )
    exact, network = ScalarLayer.of(*layer), scalar_network(*layer)
    for name, right in (("lost_one_is_larger", 0), ("lost_one_is_smaller", 1)):
        margin, place = exact.least_margin(Fraction(1), Fraction(2), right)
        answer = UNSAT if margin > 0 else SAT
        facts = {"neurons": 2, "margin_exact": str(margin), "at": str(place)}
        why = f"least margin {margin} in exact arithmetic; float32 computes {-margin}"
        yield Instance(name, network, scalar_query(Fraction(1), Fraction(2), right), answer, why, facts, True)
