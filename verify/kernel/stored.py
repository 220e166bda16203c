"""The words of a saved histogram or parity model and the margins of its certificate, read without torch."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, TypeGuard

from flint import fmpz
from safetensors import SafetensorError, deserialize

from constructions import plain_json, regular_files
from constructions.errors import BadInput, shown
from constructions.histogram_sizes import LONGEST
from verify.kernel.hints import Sets, sets_by_token

Words = tuple[tuple[int, ...], ...]
SCHEMA = "weightproof/1"  # of certificates
SIZES = ("T", "L", "d", "p", "first_count")
TENSORS = ("E", "e_BOS", "A", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
MODELS = ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm")  # of the task histogram
PARITY = "parity"  # a task with one kind of model, which its files do not name
IN_A_FORMAT = ("dot", PARITY)  # of these models runs in a format are defined as well
MOST_BYTES = 1 << 30  # of a file
# What a theorem says of its file again, or what is compared with the file before.
SAID = {"schema", "task", "reading", "verdict", "margin", "margin_per_count", "counterexample", "reason"}
REAL = ("reading", "real", "The kernel speaks of this model in real arithmetic alone: save without --precision.")
ANY_ORDER = ("reading", "dtype, any order", "Save it again.")
DECIDED = (  # what else every certificate that becomes a theorem says
    ("verdict", "PROVED", "Only what is proved can be a theorem."),
    ("counterexample", None, "Only what is proved can be a theorem."),
    ("reason", None, "Only what is proved can be a theorem."),
)


class StoredTensor(TypedDict):
    """A tensor as a safetensors file holds it."""

    dtype: str
    shape: list[int]
    data: bytes


@dataclass(frozen=True)
class WordFormat:
    """A stored number format: its name in Coq, the bits of its words, significand and exponent."""

    name: str
    width: int
    significand: int
    exponent: int

    def holds(self, other: WordFormat) -> bool:
        """Whether every number of the other format is one of this.

        >>> WORD_FORMATS["F32"].holds(WORD_FORMATS["BF16"]), WORD_FORMATS["BF16"].holds(WORD_FORMATS["F16"])
        (True, False)
        """
        return self.significand >= other.significand and self.exponent >= other.exponent

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

    def number(self, word: int) -> float:
        """A word's number, which float64 holds in every format.

        >>> WORD_FORMATS["F32"].number(0x3F800000), WORD_FORMATS["BF16"].number(0xC040)
        (1.0, -3.0)
        """
        significand = word & ((1 << self.significand) - 1)
        exponent = (word >> self.significand) & ((1 << self.exponent) - 1)
        size = significand | (1 << self.significand if exponent else 0)
        sign = -1 if word >> (self.width - 1) else 1
        return sign * math.ldexp(size, max(exponent, 1) - (1 << (self.exponent - 1)) + 1 - self.significand)


WORD_FORMATS = {
    "F64": WordFormat("float64", 64, 52, 11),
    "F32": WordFormat("float32", 32, 23, 8),
    "F16": WordFormat("float16", 16, 10, 5),
    "BF16": WordFormat("bfloat16", 16, 7, 8),
}


@dataclass(frozen=True)
class StoredProof:
    """The words of a file, its sizes, and the margins that its certificate states for the counts 1, ..., L.

    `run_in` names the format of the runs that it speaks of, None for real arithmetic.
    """

    model: str
    format: WordFormat
    sizes: Mapping[str, int]
    words: Mapping[str, Words]
    margins: tuple[float, ...]
    claim: str | None
    sha256: str
    unsaid: tuple[str, ...] = ()  # fields of the certificate of which the theorem says nothing
    run_in: str | None = None
    sets: Mapping[int, Sets] = field(default_factory=dict)  # by own token, what the certificate's search split by

    @property
    def denominator_bits(self) -> int:
        """The least s for which every weight is an integer over 2^s."""
        found = {word for rows in self.words.values() for row in rows for word in row}
        return max((self.format.denominator_bits(word) for word in found), default=0)

    @property
    def task(self) -> str:
        return PARITY if self.model == PARITY else "histogram"

    @property
    def kind(self) -> str:
        return self.model.removesuffix("+sftm")

    @property
    def is_softmax(self) -> bool:
        return self.model.endswith("+sftm")


def read_folder(folder: str) -> tuple[bytes, dict[str, object]]:
    """The bytes of the weights, and the certificate, of a folder that --save wrote.

    Raises: BadInput for a folder without them.
    """
    path = Path(folder)
    if not (folder and os.path.isdir(folder)):  # False, and no error, for a name too long
        raise BadInput(f"folder={folder!r}: no such folder. Name a folder that --save wrote.")
    data = regular_files.read(path / "weights.safetensors", "weights", MOST_BYTES)
    said = regular_files.read(path / "certificate.json", "certificate", MOST_BYTES)
    try:
        about = plain_json.loads(said)
    except ValueError as error:
        raise BadInput(f"folder={folder!r}: certificate.json is not JSON ({str(error)[:80]}). Save it again.") from None
    if not isinstance(about, dict):
        raise BadInput(f"folder={folder!r}: certificate.json holds no JSON object. Name a folder that --save wrote.")
    if about.setdefault("schema", SCHEMA) != SCHEMA:  # older files name none
        raise BadInput(f"folder={folder!r}: the certificate's schema is {shown(about['schema'])}, not {SCHEMA}.")
    if odd := [key for key in about if not (key.isascii() and key.isidentifier())]:  # names of fields are printed
        raise BadInput(f"folder={folder!r}: the certificate has a field {shown(odd[0])}. Save it again.")
    return data, about


def read_saved(folder: str) -> StoredProof:
    """Reads a folder that `verify histogram --save` or `verify parity --save` wrote.

    Raises: BadInput for anything but a model of these tasks whose certificate, in the real reading or of a dot or
    parity model in a format, says that it is PROVED, and says of it what the file says.
    """
    return read_counting(folder, *read_folder(folder))


def read_counting(folder: str, data: bytes, about: Mapping[str, object]) -> StoredProof:
    """Reads the two files of a folder; the rest as `read_saved`."""
    if about.get("task") not in ("histogram", PARITY):
        found = shown(about.get("task"))
        raise BadInput(
            f"folder={folder!r}: the task is {found}. "
            "The kernel knows histogram models, parity models, Count01 models with one head, and modular adders."
        )
    is_rounded = about.get("reading") == ANY_ORDER[1]
    check_says(folder, about, (ANY_ORDER if is_rounded else REAL, *DECIDED))
    said = _formats_of_run(folder, about.get("parameters")) if is_rounded else {}
    stored = replace(read_weights(data, _margins(folder, about)), run_in=said.get("precision"))
    if stored.model not in IN_A_FORMAT:
        check_says(folder, about, (REAL,))
    check_says(folder, about, _said_of(stored, said))
    said_of_it = {key for key, _, _ in _said_of(stored, said)}
    sets = sets_by_token(folder, about.get("tree"), stored.sizes["T"])
    return replace(stored, unsaid=tuple(sorted(about.keys() - SAID - said_of_it)), sets=sets)


def _formats_of_run(folder: str, parameters: object) -> dict[str, str]:
    """The format of a run, and that of its sums where one is named.

    Raises: BadInput for another format than those of files, or for sums in one that holds less.
    """
    said = (
        {name: parameters[name] for name in ("precision", "accumulate") if name in parameters}
        if isinstance(parameters, dict)
        else {}
    )
    known = {format.name: format for format in WORD_FORMATS.values()}
    stored, inner = (known.get(str(said.get(name))) for name in ("precision", "accumulate"))
    if stored is None or ("accumulate" in said and (inner is None or not inner.holds(stored))):
        raise BadInput(
            f"folder={folder!r}: the kernel speaks of runs in {', '.join(known)}, with sums in one of them that holds "
            f"as much, and not of {shown(said)}."
        )
    return said


def read_weights(data: bytes, margins: Sequence[float]) -> StoredProof:
    """Reads the bytes of a weights file that `--save` wrote; one margin speaks for all counts.

    Raises: BadInput for anything but a histogram or parity model with all its tensors, no other, each of its shape; and
    for another number of margins than L or 1.
    """
    header, tensors = _header(data), tensors_of(data)
    model, stated, claim = _metadata(header)
    dtypes = {str(entry["dtype"]) for entry in tensors.values()}
    if len(dtypes) != 1 or not dtypes <= WORD_FORMATS.keys() or "b_2" not in tensors:
        raise BadInput(
            f"weights: the file holds tensors {shown(sorted(tensors))} of {sorted(dtypes)}; a model has some "
            f"of {', '.join(TENSORS)}, all of one of {', '.join(sorted(WORD_FORMATS))}."
        )
    format = WORD_FORMATS[dtypes.pop()]
    sizes = stated | {"classes": math.prod(tensors["b_2"]["shape"])}
    _check_shapes(model, sizes, tensors)
    if len(margins) not in (1, sizes["L"]):
        raise BadInput(f"margins: {len(margins)} of them, for counts 1..{sizes['L']}. Save the certificate again.")
    margins = tuple(margins) if len(margins) == sizes["L"] else tuple(margins) * sizes["L"]
    words = {name: rows_of(format, tensors[name]) if name in tensors else () for name in TENSORS}
    stored = StoredProof(model, format, sizes, words, margins, claim, hashlib.sha256(data).hexdigest())
    _ = stored.denominator_bits  # refuses NaN and infinity
    return stored


def shapes_of(model: str, sizes: Mapping[str, int]) -> dict[str, list[int]]:
    """The shape of each tensor that a model has, of no other.

    >>> shapes_of("bos", {"T": 4, "L": 3, "d": 5, "p": 1, "classes": 3})["e_BOS"]
    [5]
    """
    T, L, d, p = (sizes[name] for name in ("T", "L", "d", "p"))
    classes = 2 if model == PARITY else sizes["classes"]
    shapes = {"E": [T, d], "W_1": [d, p], "b_1": [p], "W_2": [p, classes], "b_2": [classes]}
    shapes |= {"A": [L, L]} if model.startswith("lin") else {"W_Q": [d, d], "W_K": [d, d]}
    return shapes | ({"e_BOS": [d]} if model.startswith("bos") else {})


def _check_shapes(model: str, sizes: Mapping[str, int], tensors: Mapping[str, StoredTensor]) -> None:
    wanted = shapes_of(model, sizes)
    if odd := sorted(wanted.keys() ^ tensors.keys()):
        is_there = odd[0] in tensors
        raise BadInput(
            f"weights: the file {'holds' if is_there else 'lacks'} the tensor {shown(odd[0])}, which a {model} model "
            f"{'has not' if is_there else 'has'}. Save it again."
        )
    for name, shape in wanted.items():
        if (found := list(tensors[name]["shape"])) != shape:
            raise BadInput(
                f"weights: the file holds {name} of shape {found}, and the metadata need {shape}. Save it again."
            )
    if model != PARITY and sizes["L"] > sizes["classes"] + sizes["first_count"] - 1:
        raise BadInput(
            f"weights: L={shown(sizes['L'])}, but the {sizes['classes']} classes from {sizes['first_count']} on "
            f"have none for that count. Save it again."
        )


def _margins(folder: str, about: Mapping[str, object]) -> list[float]:
    """The margin for each count, or the one for all.

    Raises: BadInput unless they are positive floats, the least of them the certificate's margin.
    """
    margin, each = about.get("margin"), about.get("margin_per_count")
    margins = [margin] if each is None else each
    if (
        not isinstance(margins, list)
        or not all(map(is_margin, (margin, *margins)))
        or margin != min(margins, default=0)
    ):
        raise BadInput(f"folder={folder!r}: the certificate states no positive margins and their least. Save it again.")
    return [float(x) for x in margins]


def is_margin(x: object) -> TypeGuard[float]:
    if isinstance(x, bool) or not isinstance(x, int | float) or not 0 < x <= sys.float_info.max:
        return False
    return float(x) == x


def _said_of(stored: StoredProof, formats: Mapping[str, str]) -> Iterator[tuple[str, object, str]]:
    """What a certificate must say of a file, and of the formats of a run, and the way out where it does not."""
    sizes = {name: stored.sizes[name] for name in ("T", "L", "d", "p")}
    yield "weights_sha256", stored.sha256, "The certificate is about other weights: save both again."
    named = {} if stored.task == PARITY else {"model": stored.model}
    yield "task", stored.task, "The certificate is about another task: save both again."
    yield "parameters", {**named, **sizes, "dtype": stored.format.name, **formats}, "Save both again."
    yield "inputs_covered", str(fmpz(sizes["T"]) ** sizes["L"]), "Save both again."
    if stored.task == PARITY:  # whose files name no claim
        yield "margin_per_count", None, "Save both again."
    else:
        yield "claim", stored.claim, "Save both again."


def check_says(folder: str, about: Mapping[str, object], wanted: Iterable[tuple[str, object, str]]) -> None:
    """Raises: BadInput for the first entry of the certificate that says anything else."""
    for key, value, way_out in wanted:
        if key not in about or not _is_same(about[key], value):
            found = shown(about.get(key))
            raise BadInput(f"folder={folder!r}: the certificate's {key} is {found}, not {shown(value, 120)}. {way_out}")


def _is_same(a: object, b: object) -> bool:
    """Whether two JSON values are equal, and of the same types: true is not 1, and 1 is not 1.0."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def _header(data: bytes) -> Mapping[str, Mapping[str, str]]:
    try:
        found: Mapping[str, Mapping[str, str]] = plain_json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return found
    except ValueError as error:
        raise BadInput(f"weights: the file's header is no JSON ({str(error)[:80]}). Save it again.") from None


def tensors_of(data: bytes) -> dict[str, StoredTensor]:
    """The tensors by name; the library has seen that they fill the file without a gap, an overlap or a rest."""
    try:
        return dict(deserialize(data))  # type: ignore[no-untyped-call]
    except (SafetensorError, ValueError, TypeError) as error:
        raise BadInput(f"weights: the file is no safetensors file ({str(error)[:80]}). Save it again.") from None


def skip_of(tensors: dict[str, StoredTensor]) -> bool:
    """Takes `skip` out of the tensors, true where there is none.

    Raises: BadInput unless it is one boolean.
    """
    skip = tensors.pop("skip", {"dtype": "BOOL", "shape": [], "data": b"\1"})
    if skip["dtype"] != "BOOL" or list(skip["shape"]) or bytes(skip["data"]) not in (b"\0", b"\1"):
        raise BadInput("weights: skip is neither true nor false. Save it again.")
    return bytes(skip["data"]) == b"\1"


def _metadata(header: Mapping[str, Mapping[str, str]]) -> tuple[str, dict[str, int], str | None]:
    """The model, the sizes and the claim in the metadata.

    Raises: BadInput for a size that is no whole number, one that no model has, or an entry that is not known.
    """
    try:
        about = plain_json.loads(header["__metadata__"]["weightproof"])
        if is_parity := about.keys() == {*"LTdp"}:
            about = {**about, "model": PARITY, "first_count": 0}
        if about.keys() - {*SIZES, "model", "claim", "construction"}:
            raise ValueError("an entry is not known")
        if not (is_parity or about["model"] in MODELS) or not all(type(about[name]) is int for name in SIZES):
            raise ValueError("a size or the model is none")
        if min(about["T"], about["L"], about["d"], about["p"]) < 1 or about["first_count"] not in (0, 1):
            raise ValueError("a size is too small")
        if about["L"] > LONGEST:
            raise ValueError(f"L is above {LONGEST}")
        if is_parity and about["T"] == 1:
            raise ValueError("an alphabet of one token has no other slots to decide")
        if not all(isinstance(about.get(name), str | None) for name in ("claim", "construction")):
            raise ValueError("the claim or the construction is no text")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"weights: the metadata name no model of a task that the kernel knows ({str(error)[:80]}). Save them again."
        ) from None
    return about["model"], {name: about[name] for name in SIZES}, about.get("claim")


def rows_of(format: WordFormat, tensor: StoredTensor) -> Words:
    """A matrix as its rows of words, a vector as one row."""
    code = {64: "<Q", 32: "<I", 16: "<H"}[format.width]
    words = tuple(word for (word,) in struct.iter_unpack(code, bytes(tensor["data"])))
    *rows, columns = list[int](tensor["shape"])
    if not columns:
        return ((),) * math.prod(rows)
    return tuple(words[i : i + columns] for i in range(0, len(words), columns))
