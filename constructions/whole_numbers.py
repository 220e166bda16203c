"""Tensors stored as whole numbers of 8 or 4 bits with scales, as weight-only quantisation deploys them.

The layout of compressed-tensors, for a tensor of any name N. 8 bits: N is int8. 4 bits: N_packed is int32, eight
numbers of a row in each word, the first in the lowest bits, each as the number plus 8; N_shape is the shape of N. Both:
N_scale has one scale, or so many along each axis that their number divides the axis, each for equally many neighbours.
N stands for scale times whole number, the product rounded once to the scale's dtype.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from safetensors.torch import load, save
from torch import Tensor

from constructions.errors import BadInput

SCALE, PACKED, SHAPE = "_scale", "_packed", "_shape"
NOT_READ = {"_zero_point": "a zero point", "_g_idx": "an order of groups"}
READING = "each number is its scale times a whole number, the product rounded once to the scale's dtype"
WORDS = {torch.int8: "I8", torch.int32: "I32"}  # as safetensors writes them
SCALES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
PER_WORD, LEAST = 8, -8  # numbers of 4 bits in an int32, and the least of them
IN_HALF_A_BYTE, IN_A_BYTE = 4, 8


@dataclass(frozen=True)
class Scaled:
    """Whole numbers of so many bits and their scales, as many along each axis as divide it, or one."""

    whole: Tensor
    scale: Tensor
    bits: int = 8

    @cached_property
    def numbers(self) -> Tensor:
        """The products, each rounded once: that of 53 bits is exact but where a scale is a double.

        >>> Scaled(torch.tensor([[1, 2, 3, 4]]), torch.tensor([[0.5, 2.0]])).numbers
        tensor([[0.5000, 1.0000, 6.0000, 8.0000]])
        """
        scale = self.scale.double()
        if scale.numel() == 1:
            scale = scale.reshape(())
        for axis in range(scale.ndim):
            scale = scale.repeat_interleave(self.whole.shape[axis] // scale.shape[axis], axis)
        return (self.whole.double() * scale).to(self.scale.dtype)

    def stored(self, name: str) -> dict[str, Tensor]:
        """The tensors of the layout; those of more than 8 bits are stored as the products."""
        scale = {name + SCALE: self.scale if self.scale.ndim else self.scale[None]}
        if self.bits > IN_A_BYTE:
            return {name: self.numbers}
        if self.bits > IN_HALF_A_BYTE:
            return {name: self.whole.to(torch.int8)} | scale
        return {name + PACKED: packed(self.whole), name + SHAPE: torch.tensor(self.whole.shape)} | scale


def packed(whole: Tensor) -> Tensor:
    """Eight numbers from -8 to 7 in each int32, row by row.

    >>> packed(torch.tensor([[-8, 1, 7]])).tolist()  # 0, 9 and 15, from the lowest bits on
    [[3984]]
    """
    short = -whole.shape[-1] % PER_WORD
    digits = torch.nn.functional.pad(whole.long() - LEAST, (0, short)).reshape(*whole.shape[:-1], -1, PER_WORD)
    words: Tensor = (digits << (4 * torch.arange(PER_WORD))).sum(-1).to(torch.int32)
    return words


def unpacked(words: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The numbers of `packed`.

    >>> unpacked(packed(torch.tensor([[-8, 1, 7]])), (1, 3))
    tensor([[-8,  1,  7]])
    """
    digits = (words.long()[..., None] >> (4 * torch.arange(PER_WORD))) & 15
    return digits.flatten(-2)[..., : shape[-1]] + LEAST


def file_with(data: bytes, rounded: Mapping[str, Tensor | Scaled]) -> bytes:
    """A safetensors file with these tensors in place of its own, whole numbers in the layout."""
    tensors, length = load(data), int.from_bytes(data[:8], "little")
    for name, w in rounded.items():
        del tensors[name]
        tensors |= w.stored(name) if isinstance(w, Scaled) else {name: w}
    whole = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    return save(whole, json.loads(data[8 : 8 + length]).get("__metadata__"))


def scaled_names(words: Mapping[str, str]) -> tuple[str, ...]:
    """Which tensors are stored so, by the dtypes of a file's tensors in the words of safetensors.

    >>> scaled_names({"E": "I8", "E_scale": "F32", "W_packed": "I32", "b": "F32"})
    ('E', 'W')
    """
    in_8 = [name for name, word in words.items() if word == "I8" and name + SCALE in words]
    in_4 = [n.removesuffix(PACKED) for n, word in words.items() if word == "I32" and n.endswith(PACKED)]
    return tuple(sorted(in_8 + in_4))


def multiplied(tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The tensors that a file's stand for; those that are not stored so are as they are.

    Raises: BadInput for whole numbers without scales beside others that have some, zero points, or shapes that do not
        go together.
    """
    names = scaled_names({name: WORDS.get(tensor.dtype, "") for name, tensor in tensors.items()})
    if not names:
        return dict(tensors)
    found, used = dict[str, Tensor](), set[str]()
    for name in names:
        for end, kind in NOT_READ.items():
            if name + end in tensors:
                raise BadInput(f"{what}: {name}{end} is {kind}, and whole numbers are read with scales alone.")
        found[name] = _read(name, tensors, what).numbers
        used |= {name, name + SCALE, name + PACKED, name + SHAPE}
    others = {name: tensor for name, tensor in tensors.items() if name not in used}
    for name, tensor in others.items():
        if tensor.dtype == torch.int8:
            raise BadInput(f"{what}: {name} is int8 and has no {name}{SCALE}, as others have. Save the scales.")
        if name in found:
            raise BadInput(f"{what}: holds {name} twice, once as {name}{PACKED}. Save one of them.")
    return others | found


def _read(name: str, tensors: Mapping[str, Tensor], what: str) -> Scaled:
    """One tensor of the layout.

    Raises: BadInput for one that is not whole.
    """
    is_packed = name + PACKED in tensors
    for part in (SCALE, *((SHAPE,) if is_packed else ())):
        if name + part not in tensors:
            raise BadInput(f"{what}: {name}{PACKED if is_packed else ''} has no {name}{part}. Save it too.")
    if is_packed and name in tensors:
        raise BadInput(f"{what}: holds {name} twice, once as {name}{PACKED}. Save one of them.")
    whole, bits = (_unpacked(name, tensors, what), IN_HALF_A_BYTE) if is_packed else (tensors[name], IN_A_BYTE)
    scale = tensors[name + SCALE]
    fits = scale.ndim == whole.ndim and all(n and m % n == 0 for m, n in zip(whole.shape, scale.shape, strict=True))
    if scale.dtype not in SCALES or not bool(scale.isfinite().all()):
        raise BadInput(f"{what}: {name}{SCALE} must hold finite floating-point numbers. Save it again.")
    if scale.numel() != 1 and not fits:
        raise BadInput(
            f"{what}: {name}{SCALE} has shape {tuple(scale.shape)}, and {name} {tuple(whole.shape)}: one scale, or "
            "so many along each axis that they divide it, are read. Save it again."
        )
    return Scaled(whole, scale, bits)


def _unpacked(name: str, tensors: Mapping[str, Tensor], what: str) -> Tensor:
    words, stored = tensors[name + PACKED], tensors[name + SHAPE]
    shape = tuple(stored.flatten().tolist()) if stored.dtype in (torch.int64, torch.int32) else ()
    due = (*shape[:-1], -(-shape[-1] // PER_WORD)) if shape else None
    if due != tuple(words.shape) or prod(shape) < 1:
        raise BadInput(
            f"{what}: {name}{PACKED} has shape {tuple(words.shape)}, and {name}{SHAPE} says {shape}: eight numbers of "
            "4 bits of a row go into each word. Save it again."
        )
    return unpacked(words, shape)
