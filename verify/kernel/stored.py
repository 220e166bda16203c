"""The words of a saved histogram model and the margins of its certificate, read without torch."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, deserialize

from constructions.errors import BadInput

Words = tuple[tuple[int, ...], ...]
SIZES = ("T", "L", "d", "p", "first_count")
TENSORS = ("E", "e_BOS", "A", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
MODELS = ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm")


@dataclass(frozen=True)
class WordFormat:
    """A stored number format: its name in Coq, the bits of its words, significand and exponent."""

    name: str
    width: int
    significand: int
    exponent: int

    def denominator_bits(self, word: int) -> int:
        """The least s for which the word's number is an integer over 2^s.

        Raises: BadInput for the words of NaN and infinity.

        >>> WORD_FORMATS["F32"].denominator_bits(0x3F800000), WORD_FORMATS["F32"].denominator_bits(0x3DCCCCCD)
        (0, 27)
        """
        significand = word & ((1 << self.significand) - 1)
        exponent = (word >> self.significand) & ((1 << self.exponent) - 1)
        if exponent == (1 << self.exponent) - 1:
            raise BadInput(f"a weight has the word {word:#x}, which is NaN or infinite. No theorem speaks of it.")
        if exponent:
            significand |= 1 << self.significand
        if not significand:
            return 0
        zeros = (significand & -significand).bit_length() - 1
        return max(0, self.significand + (1 << (self.exponent - 1)) - 1 - max(exponent, 1) - zeros)


WORD_FORMATS = {
    "F64": WordFormat("float64", 64, 52, 11),
    "F32": WordFormat("float32", 32, 23, 8),
    "F16": WordFormat("float16", 16, 10, 5),
    "BF16": WordFormat("bfloat16", 16, 7, 8),
}


@dataclass(frozen=True)
class StoredModel:
    """The words of a file, its sizes, and the margins that its certificate states for the counts 1, ..., L."""

    model: str
    format: WordFormat
    sizes: Mapping[str, int]
    words: Mapping[str, Words]
    margins: tuple[float, ...]
    claim: str | None
    sha256: str

    @property
    def denominator_bits(self) -> int:
        """The least s for which every weight is an integer over 2^s."""
        found = {word for rows in self.words.values() for row in rows for word in row}
        return max((self.format.denominator_bits(word) for word in found), default=0)

    @property
    def kind(self) -> str:
        return self.model.removesuffix("+sftm")

    @property
    def is_softmax(self) -> bool:
        return self.model.endswith("+sftm")


def read_saved(folder: str) -> StoredModel:
    """Reads a folder that `verify histogram --save` wrote.

    Raises: BadInput for anything but a histogram model that its certificate, in the real reading, says is PROVED.
    """
    path = Path(folder)
    try:
        data = (path / "weights.safetensors").read_bytes()
        about = json.loads((path / "certificate.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"folder={folder!r}: cannot be read ({reason}). Name a folder that --save wrote.") from None
    if not isinstance(about, dict):
        raise BadInput(f"folder={folder!r}: certificate.json holds no JSON object. Name a folder that --save wrote.")
    _check_certificate(folder, about, hashlib.sha256(data).hexdigest())
    margins = about.get("margin_per_count") or [about.get("margin")]
    if not all(isinstance(x, int | float) and 0 < x < math.inf for x in margins):
        raise BadInput(f"folder={folder!r}: the certificate states no positive margins. Save it again.")
    return read_weights(data, [float(x) for x in margins])


def read_weights(data: bytes, margins: Sequence[float]) -> StoredModel:
    """Reads the bytes of a weights file that `--save` wrote; one margin speaks for all counts.

    Raises: BadInput for anything but a histogram model, and for another number of margins than L or 1.
    """
    tensors, about = _tensors(data), _metadata(data)
    dtypes = {entry["dtype"] for entry in tensors.values()}
    if (
        len(dtypes) != 1
        or not dtypes <= WORD_FORMATS.keys()
        or not tensors.keys() <= set(TENSORS)
        or "b_2" not in tensors
    ):
        raise BadInput(
            f"weights: the file holds tensors {sorted(tensors)} of {sorted(dtypes)}; a histogram model has some of "
            f"{', '.join(TENSORS)}, all of one of {', '.join(sorted(WORD_FORMATS))}."
        )
    format = WORD_FORMATS[dtypes.pop()]
    sizes = {name: about[name] for name in SIZES} | {"classes": math.prod(tensors["b_2"]["shape"])}
    if len(margins) not in (1, sizes["L"]):
        raise BadInput(f"margins: {len(margins)} of them, for counts 1..{sizes['L']}. Save the certificate again.")
    margins = tuple(margins) if len(margins) == sizes["L"] else tuple(margins) * sizes["L"]
    words = {name: _rows(format, tensors[name]) if name in tensors else () for name in TENSORS}
    return StoredModel(about["model"], format, sizes, words, margins, about["claim"], hashlib.sha256(data).hexdigest())


def _check_certificate(folder: str, about: Mapping[str, Any], digest: str) -> None:
    for key, value, way_out in (
        ("task", "histogram", "The kernel knows histogram models."),
        ("reading", "real", "The kernel's theorems are about real arithmetic: save without --precision."),
        ("verdict", "PROVED", "Only what is proved can be a theorem."),
        ("weights_sha256", digest, "The certificate is about other weights: save both again."),
    ):
        if about.get(key) != value:
            found = about.get(key)
            raise BadInput(f"folder={folder!r}: the certificate's {key} is {found!r}, not {value!r}. {way_out}")


def _tensors(data: bytes) -> dict[str, Any]:
    try:
        return dict(deserialize(data))  # type: ignore[no-untyped-call]
    except (SafetensorError, ValueError, TypeError) as error:
        raise BadInput(f"weights: the file is no safetensors file ({error}). Save it again.") from None


def _metadata(data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about = json.loads(header["__metadata__"]["weightproof"])
        if about["model"] not in MODELS or not all(type(about[name]) is int and about[name] >= 0 for name in SIZES):
            raise ValueError("a size or the model is none")
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"weights: the metadata name no histogram model ({error}). Save them again.") from None
    return {**{name: about[name] for name in SIZES}, "model": about["model"], "claim": _text(about.get("claim"))}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _rows(format: WordFormat, tensor: Mapping[str, Any]) -> Words:
    """A matrix as its rows of words, a vector as one row."""
    code = {64: "<Q", 32: "<I", 16: "<H"}[format.width]
    if not 1 <= len(tensor["shape"]) <= 2 or 0 in tensor["shape"]:
        raise BadInput(f"weights: the file holds a tensor of shape {tensor['shape']}; vectors and matrices are stored.")
    words = tuple(word for (word,) in struct.iter_unpack(code, bytes(tensor["data"])))
    columns = tensor["shape"][-1]
    return tuple(words[i : i + columns] for i in range(0, len(words), columns))
