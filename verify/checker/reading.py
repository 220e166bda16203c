"""Weights and certificates read byte by byte, without the libraries that wrote them."""

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from verify.checker.records import ModelSizes, RepeatedFields

WORDS = {"F64": ("float64", "d"), "F32": ("float32", "f"), "F16": ("float16", "e"), "BF16": ("bfloat16", "f")}
MODELS = ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm")
SCHEMA = "weightproof/1"  # of certificates
FAILS, UNREADABLE, NOT_CHECKABLE = 1, 2, 3  # exit codes
MOST_DIGITS = 1000  # of an integer: no size of a model that can be checked has more


C = TypeVar("C")
Rows = list[list[float]]
Tensors = dict[str, tuple[str, list[int], bytes]]  # dtype, shape and bytes by name


class Refusal(Exception):
    """Why a certificate is not accepted, and the exit code for that kind of reason."""

    def __init__(self, reason: str, exit_code: int = FAILS) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def require(holds: bool, reason: str, exit_code: int = FAILS) -> None:
    if not holds:
        raise Refusal(reason, exit_code)


class Weights(NamedTuple):
    """A model of one layer in rows, what its certificate must repeat, and which class is right for a count.

    That is the count less `first_count`; where this is None, 1 for odd counts and 0 for even ones.
    """

    repeated: RepeatedFields
    first_count: int | None
    matrices: dict[str, list[list[float]]]
    divisor: int = 1  # whose square root divides the scores


def read_certificate(data: bytes) -> dict[str, object]:
    """The certificate without the version of its schema, which must be ours; older files name none."""
    found = read_json(data, "the certificate")
    require(found.pop("schema", SCHEMA) == SCHEMA, f"the certificate's schema is not {SCHEMA}", NOT_CHECKABLE)
    return found


def read_json(data: bytes, what: str) -> dict[str, object]:
    """A JSON object without duplicate keys, NaN and infinity (which a float beyond the largest one is, too)."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        require(len(dict(pairs)) == len(pairs), f"{what}: a key occurs twice", UNREADABLE)
        return dict(pairs)

    def whole(digits: str) -> int:
        require(len(digits) <= MOST_DIGITS, f"{what}: an integer has {len(digits)} digits", UNREADABLE)
        require(digits != "-0", f"{what}: 0 has a sign", UNREADABLE)
        return int(digits)

    try:
        found = json.loads(data.decode(), object_pairs_hook=unique, parse_int=whole)
        as_text(found)
        return {**found}
    except (ValueError, TypeError, RecursionError) as error:
        raise Refusal(f"{what} is no strict JSON object ({error})", UNREADABLE) from None


def recorded(found: Mapping[str, object], record: Callable[..., C]) -> C:
    """The same as a record: another place checks that its fields are so."""
    return record(**found)


def whole_numbers(found: dict[str, object]) -> dict[str, int]:
    """The entries that are whole numbers."""
    return {name: n for name, n in found.items() if type(n) is int}


def read_weights(data: bytes) -> Weights:
    """The model in the bytes of a safetensors file that `--save` wrote."""
    tensors, about = read_tensors(data)
    model, sizes = str(about.get("model")), whole_numbers(about)
    first_count, T, L, d, p = (sizes.get(name, -1) for name in ("first_count", "T", "L", "d", "p"))
    classes = math.prod(tensors["b_2"][1]) if "b_2" in tensors else 0
    is_model = model in MODELS and 0 <= first_count <= 1 and min(T - 1, L, d, p, classes + first_count - L) >= 1
    require(is_model, f"the metadata name no model with {classes} classes: {about}")
    shapes = {"E": [T, d], "W_1": [d, p], "b_1": [p], "W_2": [p, classes], "b_2": [classes]}
    shapes |= {"A": [L, L]} if model.startswith("lin") else {"W_Q": [d, d], "W_K": [d, d]}
    shapes |= {"e_BOS": [d]} if model.startswith("bos") else {}
    dtype, found = tensors["b_2"][0], {name: tensor[:2] for name, tensor in tensors.items()}
    require(found == {name: (dtype, x) for name, x in shapes.items()}, f"the tensors of {about} must be {shapes}")
    said: ModelSizes = {"model": model, "T": T, "L": L, "d": d, "p": p, "dtype": WORDS[dtype][0]}
    repeated: RepeatedFields = {"weights_sha256": hashlib.sha256(data).hexdigest(), "claim": about.get("claim")}
    repeated["parameters"] = said
    matrices = {name: rows_of(name, *tensor) for name, tensor in tensors.items()}
    return Weights(repeated, first_count, matrices, d)


def read_tensors(data: bytes) -> tuple[Tensors, dict[str, object]]:
    """Length, header, buffer: the tensors must tile the buffer without gaps, overlaps or rest. And the metadata."""
    tensors, metadata = read_tiles(data, {})
    return tensors, read_metadata(metadata, "weightproof", "the weights file has no metadata")


def read_metadata(metadata: object, name: str, reason: str) -> dict[str, object]:
    """The JSON object in an entry of a file's metadata."""
    said = metadata.get(name) if isinstance(metadata, dict) else None
    require(isinstance(said, str), reason, UNREADABLE)
    return read_json(str(said).encode(), "the weights' metadata")


def read_tiles(data: bytes, more: dict[str, int]) -> tuple[Tensors, object]:
    """Its tensors and its metadata; `more` has the bytes of a number of dtypes beyond WORDS."""
    length, tensors, start = int.from_bytes(data[:8], "little"), Tensors(), 0
    header, buffer = read_json(data[8 : 8 + length], "the weights file's header"), data[8 + length :]
    sizes = {dtype: int(word[-2:]) // 8 for dtype, (word, _) in WORDS.items()} | more
    try:
        metadata = header.pop("__metadata__", None)
        entries = {name: entry for name, entry in header.items() if isinstance(entry, dict)}
        require({*entries} == {*header}, "the weights file's header does not describe tensors", UNREADABLE)
        for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
            dtype, shape = entry["dtype"], entry["shape"]
            stop = start + math.prod(shape) * sizes[dtype]
            must_be = {"dtype": dtype, "shape": [abs(int(n)) for n in shape], "data_offsets": [start, stop]}
            require(as_text(entry) == as_text(must_be), f"the weights file's entry for {name!r} is wrong", UNREADABLE)
            tensors[name], start = (dtype, shape, buffer[start:stop]), stop
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        raise Refusal("the weights file's header does not describe tensors", UNREADABLE) from None
    require(len(data) == 8 + length + start, "the weights file does not end where its header says", UNREADABLE)
    return tensors, metadata


def tables_of(tensors: Tensors, vectors: Collection[str]) -> dict[str, Rows]:
    """The rows of every tensor, all of one dtype: one row of each of the `vectors` and biases, matrices else."""
    require(len({dtype for dtype, _, _ in tensors.values()}) == 1, "the tensors have several dtypes", UNREADABLE)
    for name, (_, shape, _) in tensors.items():
        rank = 1 if name in vectors or "bias" in name else 2
        is_right = len(shape) == rank and min(shape) > 0
        require(is_right, f"{name} of shape {shape} must have {rank} dimensions, and entries", UNREADABLE)
    return {name: rows_of(name, *tensor) for name, tensor in tensors.items()}


def rows_of(name: str, dtype: str, shape: list[int], raw: bytes) -> Rows:
    if dtype == "BF16":  # the upper half of a float32
        raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
    word = WORDS[dtype][1]
    values = [*struct.unpack(f"<{len(raw) // struct.calcsize('<' + word)}{word}", raw)]
    require(all(map(math.isfinite, values)), f"{name} holds NaN or infinity")
    return [values[i : i + shape[-1]] for i in range(0, len(values), shape[-1])]


def whole(text: str, what: str) -> int:
    """The number that a certificate writes in digits, without sign or leading zeros."""
    is_number = len(text) <= MOST_DIGITS and re.fullmatch("0|[1-9][0-9]*", text)
    require(bool(is_number), f"{what}: {text[:80]!r} is no whole number")
    return int(text)


def as_text(value: object) -> str:
    """Equal only for values of the very same types: true is not 1, and 1 is not 1.0."""
    return json.dumps(value, sort_keys=True, allow_nan=False)
