"""Weights and certificates read byte by byte, without the libraries that wrote them."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FORMATS = {"F64": ("float64", "d"), "F32": ("float32", "f"), "F16": ("float16", "e"), "BF16": ("bfloat16", "H")}
MODELS = ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm")
FAILS, UNREADABLE, NOT_CHECKABLE = 1, 2, 3  # exit codes

Scaled = tuple[list[list[int]], int]  # rows of integers, times 2^-shift


class Refusal(Exception):
    """Why a certificate is not accepted, and the exit code for that kind of reason."""

    def __init__(self, reason: str, exit_code: int = FAILS) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Weights:
    """A histogram model as stored; class c stands for the count c + first_count."""

    parameters: dict[str, Any]
    first_count: int
    claim: str | None
    sha256: str
    matrices: dict[str, Scaled]


def read_json(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object without duplicate keys, NaN and infinity (which a float beyond the largest one is, too)."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) == len(pairs):
            return dict(pairs)
        raise ValueError("a key occurs twice")

    def finite(digits: str) -> float:
        if math.isfinite(float(digits)):
            return float(digits)
        raise ValueError(f"{digits} is not finite")

    try:
        found = json.loads(data.decode(), object_pairs_hook=unique, parse_float=finite, parse_constant=finite)
        return {**found}
    except (ValueError, TypeError, RecursionError) as error:
        raise Refusal(f"{what} is no strict JSON object ({error})", UNREADABLE) from None


def read_weights(data: bytes) -> Weights:
    """The model in the bytes of a safetensors file that `--save` wrote."""
    tensors, about = _tensors(data)
    names: list[Any] = [about.get(name) for name in ("model", "first_count", "L")]
    model, first_count, L = names
    try:
        (T, d), (p, classes), dtype = tensors["E"][1], tensors["W_2"][1], tensors["E"][0]
    except (KeyError, ValueError):
        raise Refusal("E or W_2 is missing, or no matrix") from None
    shapes: dict[str, Any] = {"E": [T, d], "W_1": [d, p], "b_1": [p], "W_2": [p, classes], "b_2": [classes]}
    shapes |= {"A": [L, L]} if str(model).startswith("lin") else {"W_Q": [d, d], "W_K": [d, d]}
    shapes |= {"e_BOS": [d]} if str(model).startswith("bos") else {}
    if {name: tensor[:2] for name, tensor in tensors.items()} != {name: (dtype, x) for name, x in shapes.items()}:
        raise Refusal(f"the tensors' names, dtypes or shapes are not those of {model} ({dtype}: {shapes})")
    parameters = {"model": model, "T": T, "L": L, "d": d, "p": p, "dtype": FORMATS[dtype][0]}
    if [type(x) for x in (L, first_count)] != [int, int] or not 0 <= first_count <= 1 or model not in MODELS:
        raise Refusal(f"the weights' metadata name no model: {about}")
    if (
        repr([about.get(name) for name in "Tdp"]) != repr([T, d, p])
        or min(T - 1, L, d, p, classes + first_count - L) < 1
    ):
        raise Refusal(f"the weights' metadata {about} do not fit {parameters} with {classes} classes")
    matrices = {name: _matrix(name, *tensor) for name, tensor in tensors.items()}
    return Weights(parameters, first_count, about.get("claim"), hashlib.sha256(data).hexdigest(), matrices)


def _tensors(data: bytes) -> tuple[dict[str, tuple[str, list[int], bytes]], dict[str, Any]]:
    """Length, header, buffer: the tensors must tile the buffer without gaps, overlaps or rest."""
    length, tensors, end = int.from_bytes(data[:8], "little"), {}, 0
    header, buffer = read_json(data[8 : 8 + length], "the weights file's header"), data[8 + length :]
    try:
        about = read_json(header.pop("__metadata__")["weightproof"].encode(), "the weights' metadata")
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            dtype, shape, (start, stop) = (entry.pop(key) for key in ("dtype", "shape", "data_offsets"))
            size = math.prod(shape) * struct.calcsize(FORMATS[dtype][1])
            if entry or any(type(n) is not int or n < 0 for n in [*shape, stop]) or start != end or stop != end + size:
                raise KeyError
            tensors[name], end = (dtype, shape, buffer[end:stop]), stop
    except (TypeError, ValueError, KeyError, AttributeError):
        raise Refusal("the weights file's header does not name tensors that follow each other", UNREADABLE) from None
    if len(data) < 8 + length or end != len(buffer):
        raise Refusal(f"the weights file holds {len(buffer)} bytes of numbers, its header says {end}", UNREADABLE)
    return tensors, about


def _matrix(name: str, dtype: str, shape: list[int], raw: bytes) -> Scaled:
    values: Sequence[Any] = struct.unpack(f"<{math.prod(shape)}{FORMATS[dtype][1]}", raw)
    if dtype == "BF16":  # the upper half of a float32
        values = struct.unpack(f"<{len(values)}f", b"".join(struct.pack("<I", x << 16) for x in values))
    if not all(map(math.isfinite, values)):
        raise Refusal(f"{name} holds NaN or infinity")
    return scaled(values, shape[-1])


def scaled(values: Sequence[float], width: int) -> Scaled:
    """The exact values as integers, times 2^-shift, in rows."""
    ratios = [x.as_integer_ratio() for x in values]
    shift = max(n.bit_length() for _, n in ratios) - 1
    numbers = [m << shift + 1 - n.bit_length() for m, n in ratios]
    return [numbers[i : i + width] for i in range(0, len(numbers), width)], shift
