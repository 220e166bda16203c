"""Models with fewer bits: tensors rounded to a grid with scales, or to a format, and decided as they are then stored.

Weight-only quantisation, as it is deployed: whole numbers q and a scale for each tensor or channel, and the model
computes with scale times q in its own dtype. What is decided are these products, rounded to that dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from verify.arithmetic.readings import Reading, Real
from verify.changes.changeable import Changeable
from verify.frame.certificate import Certificate, Verdict
from verify.frame.decide import Effort

BITS = range(2, 17)  # of whole numbers, the sign included
PER_TENSOR, PER_CHANNEL = "per-tensor", "per-channel"
FORMATS = {
    "fp8": torch.float8_e4m3fn,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
SCHEMES = (PER_TENSOR, PER_CHANNEL, *FORMATS)


@dataclass(frozen=True)
class NumberGrid:
    """Where a model's numbers may lie: whole numbers of `bits` bits times scales, or a format where `bits` is None."""

    scheme: str = PER_TENSOR
    bits: int | None = 8

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise BadInput(f"scheme={self.scheme!r}: must be one of {', '.join(SCHEMES)}.")
        if self.scheme in FORMATS and self.bits is not None:
            raise BadInput(f"bits={self.bits}: the scheme {self.scheme} has its own number of bits. Leave it out.")
        if self.scheme not in FORMATS and self.bits not in BITS:
            raise BadInput(f"bits={self.bits}: must be from {BITS[0]} to {BITS[-1]} for {self.scheme}.")

    def __str__(self) -> str:
        return self.scheme if self.bits is None else f"{self.bits} bits {self.scheme}"

    def rounded(self, w: Tensor) -> tuple[Tensor, Tensor | None]:
        """The numbers of a tensor on the grid, in its own dtype, and the scales: one, or one for each column.

        >>> grid = NumberGrid(PER_TENSOR, 3)
        >>> grid.rounded(torch.tensor([3.0, -1.4, 0.4]))
        (tensor([ 3., -1.,  0.]), tensor(1.))
        """
        if self.bits is None:
            dtype = FORMATS[self.scheme]
            largest = torch.finfo(dtype).max
            return w.clamp(-largest, largest).to(dtype).to(w.dtype), None
        most = 2 ** (self.bits - 1) - 1
        top = w.abs().amax(0) if self.scheme == PER_CHANNEL and w.ndim > 1 else w.abs().amax()
        scale = torch.where(top > 0, top / most, torch.ones_like(top))
        return (w / scale).round().clamp(-most, most) * scale, scale


@dataclass(frozen=True)
class Quantised:
    """A model whose `tensors` lie on a grid, with the verifier's word on it; a format has no `scales`."""

    grid: NumberGrid
    tensors: tuple[str, ...]
    module: nn.Module
    certificate: Certificate
    scales: dict[str, Tensor]

    def __bool__(self) -> bool:
        return self.certificate.verdict is Verdict.PROVED

    def to_dict(self) -> dict[str, object]:
        """The result as plain JSON values."""
        return {
            "verdict": self.certificate.verdict.value,
            "scheme": self.grid.scheme,
            "bits": self.grid.bits,
            "tensors": list(self.tensors),
            "scales": {name: scale.tolist() for name, scale in self.scales.items()},
            "certificate": self.certificate.to_dict(),
        }


def quantise(
    changeable: Changeable,
    grid: NumberGrid,
    reading: Reading | None = None,
    effort: Effort | None = None,
    *,
    tensors: Collection[str] | None = None,
) -> Quantised:
    """The model with its tensors, or those that are named, on a grid, decided in a reading.

    Raises: BadInput for a name that is no tensor of the model.
    """
    chosen = changeable.chosen(tensors)
    module, scales = deepcopy(changeable.module), dict[str, Tensor]()
    with torch.no_grad():
        for name in chosen:
            w = module.get_parameter(name)
            rounded, scale = grid.rounded(w)
            w.copy_(rounded)
            if scale is not None:
                scales[name] = scale
    certificate = changeable.decide(module, reading or Real(), effort or Effort())
    return Quantised(grid, chosen, module, certificate, scales)


Tried = Callable[[Quantised], None]


@dataclass(frozen=True)
class FewestBits:
    """The models on grids of 2, 3, ... bits up to the first that is proved, all of which were decided."""

    tried: tuple[Quantised, ...]

    @property
    def found(self) -> Quantised | None:
        """The one with the fewest bits that is proved."""
        return self.tried[-1] if self.tried and self.tried[-1] else None

    @property
    def verdict(self) -> Verdict:
        """PROVED where some number of bits is, REFUTED where all of them are, else UNKNOWN."""
        if self.found is not None:
            return Verdict.PROVED
        are_wrong = all(q.certificate.verdict is Verdict.REFUTED for q in self.tried)
        return Verdict.REFUTED if are_wrong else Verdict.UNKNOWN

    def to_dict(self) -> dict[str, object]:
        """The result as plain JSON values."""
        found = self.found
        return {
            "verdict": self.verdict.value,
            "bits": None if found is None else found.grid.bits,
            "tried": [{"bits": q.grid.bits, "verdict": q.certificate.verdict.value} for q in self.tried],
        }


def fewest_bits(
    changeable: Changeable,
    scheme: str = PER_TENSOR,
    reading: Reading | None = None,
    effort: Effort | None = None,
    *,
    tensors: Collection[str] | None = None,
) -> FewestBits:
    """The fewest bits at which the model is proved, every smaller number of bits decided before.

    More bits may be wrong again: proved at b bits says nothing of b + 1.
    Raises: BadInput for a scheme that has no bits to choose.
    """
    if scheme in FORMATS:
        raise BadInput(f"scheme={scheme!r}: has its own number of bits. Use {PER_TENSOR} or {PER_CHANNEL}.")
    effort, tried = effort or Effort(), list[Quantised]()
    for bits in BITS:
        tried.append(quantise(changeable, NumberGrid(scheme, bits), reading, effort, tensors=tensors))
        effort.progress((bits - BITS[0]) / len(BITS))
        if tried[-1]:
            break
    return FewestBits(tuple(tried))
