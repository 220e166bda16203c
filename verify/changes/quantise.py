"""Models with fewer bits: tensors rounded to a grid with scales, or to a format, and decided as they are then stored.

Weight-only quantisation, as it is deployed: whole numbers q and a scale for each tensor or channel, and the model
computes with scale times q in its own dtype. What is decided are these products, rounded to that dtype. Nothing else is
asked of a task than its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.whole_numbers import Scaled
from verify.frame.certificate import Certificate, Verdict
from verify.frame.decide import Effort

M = TypeVar("M")  # what a model is: a module, or a file

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

    def rounded(self, w: Tensor) -> Tensor | Scaled:
        """The numbers of a tensor on the grid, in its own dtype: whole ones with one scale, or one for each column.

        >>> grid = NumberGrid(PER_TENSOR, 3)
        >>> grid.rounded(torch.tensor([3.0, -1.4, 0.4])).numbers
        tensor([ 3., -1.,  0.])
        """
        if self.bits is None:
            dtype = FORMATS[self.scheme]
            largest = torch.finfo(dtype).max
            return w.clamp(-largest, largest).to(dtype).to(w.dtype)
        most = 2 ** (self.bits - 1) - 1
        is_per_channel = self.scheme == PER_CHANNEL and w.ndim > 1
        top = w.abs().amax(tuple(range(w.ndim - 1)), keepdim=True) if is_per_channel else w.abs().amax()
        scale = torch.where(top / most > 0, top / most, torch.ones_like(top))
        wide = torch.promote_types(w.dtype, torch.float32)
        return Scaled((w.to(wide) / scale.to(wide)).round().clamp(-most, most), scale, self.bits)


Rounded = Mapping[str, Tensor | Scaled]


def numbers_of(rounded: Tensor | Scaled) -> Tensor:
    """What a tensor is on a grid."""
    return rounded.numbers if isinstance(rounded, Scaled) else rounded


@dataclass(frozen=True)
class Roundable(Generic[M]):
    """A model's tensors, and the model with others in their place, decided by its task with an effort."""

    tensors: Mapping[str, Tensor]
    decided: Callable[[Rounded, Effort], tuple[M, Certificate]]

    @classmethod
    def of(cls, module: nn.Module, decide: Callable[[nn.Module, Effort], Certificate]) -> Roundable[nn.Module]:
        """A module, whose copies are decided; a number alone, without an axis, is its own scale and stays."""

        def decided(rounded: Rounded, effort: Effort) -> tuple[nn.Module, Certificate]:
            copied = deepcopy(module)
            with torch.no_grad():
                for name, w in rounded.items():
                    copied.get_parameter(name).copy_(numbers_of(w))
            return copied, decide(copied, effort)

        return Roundable({name: w.detach() for name, w in module.named_parameters() if w.ndim}, decided)

    def chosen(self, tensors: Collection[str] | None) -> tuple[str, ...]:
        """The names of tensors, all by default.

        Raises: BadInput for a name that is no tensor of the model.
        """
        for name in tensors or ():
            if name not in self.tensors:
                raise BadInput(f"tensors={name!r}: the model has {', '.join(self.tensors)}.")
        return tuple(self.tensors if tensors is None else tensors)


@dataclass(frozen=True)
class Quantised(Generic[M]):
    """A model whose tensors of these names lie on a grid, with the verifier's word on it."""

    grid: NumberGrid
    rounded: Rounded
    module: M
    certificate: Certificate

    def __bool__(self) -> bool:
        return self.certificate.verdict is Verdict.PROVED

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(self.rounded)

    @property
    def scales(self) -> dict[str, Tensor]:
        """The scales of each tensor, none for a format: a number, or one for each column."""
        scaled = {name: w.scale for name, w in self.rounded.items() if isinstance(w, Scaled)}
        return {name: scale.flatten() if scale.ndim else scale for name, scale in scaled.items()}

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
    model: Roundable[M], grid: NumberGrid, effort: Effort, *, tensors: Collection[str] | None = None
) -> Quantised[M]:
    """The model with its tensors, or those that are named, on a grid, decided.

    Raises: BadInput for a name that is no tensor of the model.
    """
    rounded = {name: grid.rounded(model.tensors[name]) for name in model.chosen(tensors)}
    module, certificate = model.decided(rounded, effort)
    return Quantised(grid, rounded, module, certificate)


@dataclass(frozen=True)
class FewestBits(Generic[M]):
    """The models on grids of 2, 3, ... bits up to the first that is proved, or to where the time was up."""

    tried: tuple[Quantised[M], ...]

    @property
    def found(self) -> Quantised[M] | None:
        """The last one where it is proved; the fewest bits are no more than it has."""
        return self.tried[-1] if self.tried and self.tried[-1] else None

    @property
    def undecided(self) -> tuple[int, ...]:
        """The numbers of bits, below one that is proved where there is one, that are neither proved nor refuted."""
        is_open = [q.grid.bits for q in self.tried if q.certificate.verdict is Verdict.UNKNOWN]
        unreached = () if self.found is not None else BITS[len(self.tried) :]
        return (*(bits for bits in is_open if bits is not None), *unreached)

    @property
    def verdict(self) -> Verdict:
        """PROVED where some number of bits is and all fewer are wrong, REFUTED where all are wrong, else UNKNOWN."""
        if self.undecided:
            return Verdict.UNKNOWN
        return Verdict.REFUTED if self.found is None else Verdict.PROVED

    def to_dict(self) -> dict[str, object]:
        """The result as plain JSON values."""
        found = self.found
        return {
            "verdict": self.verdict.value,
            "bits": None if found is None else found.grid.bits,
            "tried": [{"bits": q.grid.bits, "verdict": q.certificate.verdict.value} for q in self.tried],
            "undecided": list(self.undecided),
        }


def fewest_bits(
    model: Roundable[M], scheme: str, effort: Effort, *, tensors: Collection[str] | None = None
) -> FewestBits[M]:
    """The fewest bits at which the model is proved, every smaller number of bits decided before.

    The decisions share the effort's seconds, and none begins when they are over; steps are those of each.
    More bits may be wrong again: proved at b bits says nothing of b + 1.
    Raises: BadInput for a scheme that has no bits to choose.
    """
    if scheme in FORMATS:
        raise BadInput(f"scheme={scheme!r}: has its own number of bits. Use {PER_TENSOR} or {PER_CHANNEL}.")
    tried, until = list[Quantised[M]](), effort.end()
    for bits, one in zip(BITS, effort.shares(len(BITS)), strict=True):
        if until.is_up():
            break
        tried.append(quantise(model, NumberGrid(scheme, bits), one, tensors=tensors))
        effort.progress((bits - BITS[0]) / len(BITS))
        if tried[-1]:
            break
    return FewestBits(tuple(tried))
