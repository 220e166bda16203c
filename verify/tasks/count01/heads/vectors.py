"""One head of uniform attention with given value vectors: whether a readout separates, with what shows it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands.options import fractions
from verify.frame.schema import as_json

if TYPE_CHECKING:
    from verify.tasks.count01.heads.separability import Separability
    from verify.tasks.count01.layer_norm.laws import Law

TOKENS = ("0", "1", "2", "BOS", "=")  # in the order of --values


@dataclass(frozen=True)
class Vectors:
    """The value vectors of 0, 1, 2, BOS and "=", exact in float64, and the triples to separate."""

    values: tuple[tuple[Fraction, ...], ...]
    law: Law

    @classmethod
    def parsed(cls, text: str, law: str) -> Vectors:
        """The vectors in "-1,0:1,0:0,1:0,0:0,0" and a law's name.

        Raises: BadInput for other than five vectors of one length, or numbers that float64 rounds.
        """
        from verify.tasks.count01.layer_norm.laws import law_named

        parts = text.split(":")
        if len(parts) != len(TOKENS):
            raise BadInput(
                f"--values {text[:60]!r}: without --ratios it has vectors of {', '.join(TOKENS)} with colons "
                "between, such as -1:1:0:-1/2:0 or -1,0:1,0:0,1:0,0:0,0"
            )
        d_h = parts[0].count(",") + 1
        values = tuple(tuple(fractions("--values", part, d_h)) for part in parts)
        for x in (x for vector in values for x in vector):
            if abs(x) > 2**53 or Fraction(float(x)) != x:
                raise BadInput(f"--values {x}: a model stores numbers in float64, which rounds it; take one like 1/2")
        return cls(values, law_named(law))

    def decided(self) -> Separability:
        """The answer of the linear programme on the built model's stored numbers, with its certificate."""
        from constructions.count01_heads_arrays import uniform_head
        from verify.tasks.count01.heads.separability import separability
        from verify.tasks.count01.layer_norm.numbers import model_numbers

        stored = {token: [float(x) for x in v] for token, v in zip(TOKENS, self.values, strict=True)}
        model = uniform_head(stored, [0.0] * len(self.values[0]))
        return separability(model_numbers(model).heads[0], self.law)


def decide(asked: Vectors, *, is_json: bool) -> int:
    """Prints whether a readout separates, by the linear programme and, on all of N^3, by H-1's condition as well."""
    from bounds.count01_heads import separates_everything

    law, found = asked.law, asked.decided()
    if law.is_unbounded and found.is_separable != separates_everything(asked.values):
        raise AssertionError(f"{asked}: the condition of H-1 and the programme differ")
    claim = "H-1" if law.is_unbounded else "H-5" if law.is_uniform else None
    verdict = {True: "PROVED", False: "REFUTED", None: "UNKNOWN"}[found.is_separable]
    data: dict[str, object] = {
        "task": "heads, values",
        "claim": claim,
        "verdict": verdict,
        "law": law.name,
        "law_text": str(law),
        "values": [[str(x) for x in vector] for vector in asked.values],
        "certificate": found.certificate,
        "reason": found.reason,
    }
    if is_json:
        print(as_json(data))
    else:
        said = {True: "a readout separates", False: "no readout separates", None: "not decided whether one separates"}
        print(f"law       {law.name}: {law}\nshown by  {shown_by(found)}")
        print(f"{verdict}  {said[found.is_separable]} n1 > n0 from the rest" + (f" ({claim})" if claim else ""))
    return {True: 0, False: 1, None: 3}[found.is_separable]


def shown_by(found: Separability) -> str:
    """A separator, or the conditions that rule every one out."""
    certificate = found.certificate
    if certificate is None:
        return found.reason or "nothing"
    numbers = certificate.get("w")
    if isinstance(numbers, list):
        return f"w = ({', '.join(numbers)}), b = {certificate['b']}"
    parts = certificate["rays" if found.is_separable else "rows"]
    assert isinstance(parts, list)
    if found.is_separable:
        return f"a sum of {len(parts)} extreme rays"
    return f"{len(parts)} conditions with a nonnegative combination to zero"
