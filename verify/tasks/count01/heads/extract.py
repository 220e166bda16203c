"""A smaller model from the heads that separate: their weights as they are, and a readout from the linear programme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from flint import ctx

from constructions.count01_arrays import EOS, EQUALS, FIVE, FOUR, NORM_EPSILON, zero
from constructions.errors import BadInput
from constructions.model_arrays import Array, ModelArrays
from verify.arithmetic.stored import numbers as floats
from verify.tasks.count01.heads.joint import joint
from verify.tasks.count01.heads.separability import SEPARATOR, Separability, separability
from verify.tasks.count01.judged import judged
from verify.tasks.count01.layer_norm.counting import wrong_after_equals, wrong_where_due
from verify.tasks.count01.layer_norm.laws import Law
from verify.tasks.count01.layer_norm.numbers import ModelNumbers, model_numbers
from verify.tasks.count01.layer_norm.syntax import Syntax
from verify.tasks.count01.task import answer

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model


@dataclass(frozen=True)
class Extracted:
    """The smaller model, and on how many of the law's triples it is wrong after "=" and after the due answer."""

    model: ModelArrays
    inputs: int
    wrong: int
    wrong_syntax: int

    @property
    def is_proved(self) -> bool:
        return self.wrong == self.wrong_syntax == 0


def extract(model: Count01Model, heads: Sequence[int], law: Law, labels: str) -> Extracted:
    """Builds and decides a model of these heads alone that answers by a separator of the law's triples.

    The separator is a float64 direction: it is rounded to what the model can store, and the stored model is what is
    decided. EOS is read from the residual, which tells 4 and 5 from "=".
    Raises: BadInput where the heads do not separate, or the law is unbounded.
    """
    if law.is_unbounded:
        raise BadInput("--extract: takes a bounded law, such as --law box:0:200:200")
    model = judged(model)
    numbers = model_numbers(model)
    single = [separability(head, law) for head in numbers.heads]
    found = joint(numbers, heads, law, single)
    if not found.is_separable:
        said = "do not separate" if found.is_separable is False else "were not shown to separate"
        named = ",".join(map(str, heads))
        raise BadInput(f"--extract {named}: these heads {said} n1 > n0 from the rest under {law.name}; choose others")
    try:
        w, b = direction(numbers, heads, found)
    except OverflowError:
        raise BadInput(f"--extract {named}: the separator is beyond float64; scale the weights down") from None
    small = rebuilt(model, numbers, heads, w, b, labels)
    return decided(small, law, labels)


def decided(small: ModelArrays, law: Law, labels: str) -> Extracted:
    """The exact number of wrong triples of a stored model, after "=" and after the due answer."""
    numbers = model_numbers(small)
    wrong = len(wrong_after_equals(numbers, law, labels)[0])
    if law.is_uniform:
        missed = sum(len(wrong_where_due(numbers, law.domain, labels, last)) for last in (FOUR, FIVE))
    else:
        missed = int(Syntax(numbers, law, labels).accuracy(range(small.heads), law) != 1)
    return Extracted(small, law.size, wrong, missed)


def direction(model: ModelNumbers, heads: Sequence[int], found: Separability) -> tuple[list[list[float]], float]:
    """The separator of a certificate as one list of numbers per head and an offset, in float64."""
    certificate = found.certificate or {}
    if certificate["kind"] == "one head":
        w: list[list[float]] = [[0.0] * model.heads[h].d_h for h in heads]
        head, own = certificate["head"], certificate["certificate"]
        assert isinstance(head, int) and isinstance(own, dict)
        w[list(heads).index(head)], b = _stored(found, own)
        return w, b
    if "heads" in certificate:
        parts = certificate["w"]
        assert isinstance(parts, list)
        return [[float(Fraction(x)) for x in part] for part in parts], float(Fraction(str(certificate["b"])))
    own_w, b = _stored(found, certificate)
    return [own_w], b


def _stored(found: Separability, certificate: dict[str, object]) -> tuple[list[float], float]:
    """The separator of one head: the certificate's numbers, or where it has none the floats beside it."""
    if certificate["kind"] == SEPARATOR:
        w, b = certificate["w"], certificate["b"]
        return [float(Fraction(str(x))) for x in w], float(Fraction(str(b)))  # type: ignore[attr-defined]
    if found.w is None:
        raise OverflowError("the separator has no floats")
    return list(found.w), float(found.b or 0.0)


def rebuilt(
    model: Count01Model, numbers: ModelNumbers, heads: Sequence[int], w: list[list[float]], b: float, labels: str
) -> ModelArrays:
    """The model in float64: the heads write w . r into one lane of the residual, where 4 and 5 read +-(w . r + b).

    The lane is a new one, or with layer norm, which a lane more would change, the one that EOS misses least.
    """
    kept, E = list(heads), floats(model.E)
    d = E.shape[1]
    lane, width = (_least_needed(E), d) if model.has_norm else (d, d + 1)
    small = zero(
        d=width,
        heads=len(kept),
        d_h=model.W_Q.shape[2],
        norm=model.has_norm,
        scale=model.scale,
        norm_eps=float(model.norm_eps) if model.has_norm else NORM_EPSILON,
        dtype="float64",
    )
    more = answer(0, 1, labels)
    small.E[:, :d] = E
    for name in ("W_Q", "W_K", "W_V"):
        getattr(small, name)[:, :d] = floats(getattr(model, name))[kept]
    for h, part in enumerate(w):
        small.W_O[h, :, lane] = part
    if model.has_norm:
        small.norm_weight[:], small.norm_bias[:] = floats(model.norm_weight), floats(model.norm_bias)
    offset = b - float(small.E[EQUALS, lane])
    small.b_out[:] = -1.0
    small.W_out[lane, more], small.b_out[more] = 1.0, offset
    small.W_out[lane, FOUR + FIVE - more], small.b_out[FOUR + FIVE - more] = -1.0, -offset
    _read_end(small, lane, _largest(numbers, heads, w, abs(offset) + float(abs(small.E[:, lane]).max())))
    return small


def _least_needed(E: Array) -> int:
    """The lane without which the residual still tells 4 and 5 best from "="."""
    return max(range(E.shape[1]), key=lambda lane: _end(E, lane)[1])


def _largest(numbers: ModelNumbers, heads: Sequence[int], w: list[list[float]], size: float) -> float:
    """A bound on |w . r| + size after any token: r is a mean of values."""
    for h, part in zip(heads, w, strict=True):
        with ctx.workprec(64):
            values = [[abs(float(x.ball(64).mid())) for x in row] for row in numbers.heads[h].values]
        size += max(sum(abs(a) * x for a, x in zip(part, row, strict=True)) for row in values)
    return 2 * size + 1


def _end(E: Array, lane: int) -> tuple[Array, float]:
    """(u, gap): u . E is larger by gap or more at 4 and 5 than at "=", without the lane; 0 where 4, "=", 5 align."""
    E = E.copy()
    E[:, lane] = 0
    a, c = E[FOUR] - E[EQUALS], E[FIVE] - E[EQUALS]
    u = a / max(np.linalg.norm(a), 1e-300) + c / max(np.linalg.norm(c), 1e-300)
    return u, float(min(u @ a, u @ c))


def _read_end(small: ModelArrays, lane: int, largest: float) -> None:
    """EOS above everything after 4 and 5, and below zero after "=", by the residual; left out where 4, "=", 5 align."""
    u, gap = _end(small.E, lane)
    if not gap > 1e-9:
        return
    factor = 2.0 ** math.ceil(math.log2(4 * largest / gap))
    small.W_out[:, EOS] = u * factor
    small.b_out[EOS] = -float(u @ small.E[EQUALS]) * factor - gap * factor / 2
