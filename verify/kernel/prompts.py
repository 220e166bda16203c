"""The words of a saved Count01 model, what its certificate says of all strings, and the theorem that both become."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from constructions.errors import BadInput, shown
from verify.kernel.stored import (
    DECIDED,
    REAL,
    WORD_FORMATS,
    WordFormat,
    Words,
    check_says,
    is_margin,
    rows_of,
    skip_of,
    tensors_of,
)
from verify.kernel.theorem import MARGIN_BITS, Theorem, file_of, proof_of, tensor_in_coq

TASK = "count01"
TOKENS = 8
NAMES = {"E": "emb", "W_Q": "w_q", "W_K": "w_k", "W_V": "w_v", "W_O": "w_o", "W_out": "w_out", "b_out": "b_out"}
LABELS = ("majority-ones", "thesis")
# Of the parameters: compared with the file, said by the theorem, or how the model was made, which neither says.
COMPARED = ("heads", "d", "skip", "dtype")
LIMITS = ("max_digits", "max_noise")
MADE_BY = ("construction", "N", "eps", "as_printed", "d_h")
SAID = {"schema", "reading", "verdict", "counterexample", "reason", "margin", "margin_scaled", "margin_per_count"}
INPUTS_ARE = "triples (n0, n1, n2) times the last tokens =, 4, 5; each triple stands for every order of its digits"
SPARE_BITS = 96  # of brackets around exponentials, beyond those of the counts and the margin
MOST_SPREAD = 700  # of the bits between the largest exponential and the least; those below it lie in [0, 1]
PREAMBLE = (
    "From Coq Require Import List ZArith.",
    "From Weightproof Require Import Model Stored Prompts PromptChecks PromptsCorrect.",
    "Import ListNotations.",
    "Open Scope Z_scope.",
)


@dataclass(frozen=True)
class StoredPrompts:
    """The words of a file with one head, and its certificate's claim: None where a count has no limit."""

    format: WordFormat
    is_skipped: bool  # is the token's own embedding added?
    sizes: Mapping[str, int]  # d, d_h, classes
    words: Mapping[str, Words]
    digits: int | None
    noise: int | None
    is_thesis: bool
    margin: float
    is_over_sum: bool  # is the margin one of leads times the softmax's sum?
    sha256: str
    unsaid: tuple[str, ...] = ()

    @property
    def denominator_bits(self) -> int:
        """The least s for which every weight is an integer over 2^s."""
        found = {word for rows in self.words.values() for row in rows for word in row}
        return max((self.format.denominator_bits(word) for word in found), default=0)


def read_prompts(folder: str, data: bytes, about: Mapping[str, object]) -> StoredPrompts:
    """Reads what `verify count01 --save` wrote, of a plain model with one head.

    Raises: BadInput for several heads, layer norm, a region that the theorem does not know, or a certificate that says
    anything else than the file, or no PROVED in the real reading.
    """
    check_says(folder, about, (REAL, *DECIDED))
    format, is_skipped, sizes, words = _read(data)
    p = about.get("parameters")
    if not isinstance(p, dict) or (odd := sorted({*p} - {*COMPARED, *LIMITS, *MADE_BY, "labels", "max_length"})):
        found = shown(odd[0] if isinstance(p, dict) else p)
        raise BadInput(f"folder={folder!r}: the certificate's parameters hold {found}, of which no theorem speaks.")
    in_file = {"heads": 1, "d": sizes["d"], "skip": is_skipped, "dtype": format.name}
    check_says(folder, p, ((name, in_file[name], "Save both again.") for name in COMPARED))
    check_says(folder, p, [("max_length", None, "No theorem speaks of it: give --max-digits and --max-noise.")])
    digits, noise = (_limit(folder, name, p.get(name)) for name in LIMITS)
    if p.get("labels") not in LABELS:
        raise BadInput(f"folder={folder!r}: the labels are {shown(p.get('labels'))}, not one of {', '.join(LABELS)}.")
    margin, is_over_sum = _margin(folder, about)
    sha256 = hashlib.sha256(data).hexdigest()
    wanted = list(_said(digits, noise, sha256))
    check_says(folder, about, wanted)
    said = SAID | {key for key, _, _ in wanted} | {"parameters"}
    unsaid = sorted([*(about.keys() - said), *(f"parameters.{name}" for name in MADE_BY if name in p)])
    return StoredPrompts(
        format, is_skipped, sizes, words, digits, noise, p["labels"] == "thesis", margin, is_over_sum, sha256,
        tuple(unsaid),
    )  # fmt: skip


def _read(data: bytes) -> tuple[WordFormat, bool, dict[str, int], dict[str, Words]]:
    """The words of a file.

    Raises: BadInput for a tensor that such a model has not, one that is missing, or one of another shape.
    """
    tensors = tensors_of(data)
    is_skipped = skip_of(tensors)
    dtypes = {str(entry["dtype"]) for entry in tensors.values()}
    if {*tensors} != {*NAMES} or len(dtypes) != 1 or not dtypes <= WORD_FORMATS.keys():
        raise BadInput(
            f"weights: the file holds tensors {shown(sorted(tensors))} of {sorted(dtypes)}. The kernel knows Count01 "
            f"models with {', '.join(NAMES)} and skip, all but skip of one of {', '.join(sorted(WORD_FORMATS))}."
        )
    shapes = {name: list(entry["shape"]) for name, entry in tensors.items()}
    heads, d, d_h = shapes["W_Q"] if len(shapes["W_Q"]) == 3 else (0, 0, 0)
    classes = math.prod(shapes["b_out"])
    if heads != 1:
        raise BadInput(f"weights: W_Q is of shape {shapes['W_Q']}. The kernel knows Count01 models with one head.")
    of_head = [1, d, d_h]
    wanted = {"E": [TOKENS, d], "W_Q": of_head, "W_K": of_head, "W_V": of_head, "W_O": [1, d_h, d]}
    wanted |= {"W_out": [d, classes], "b_out": [classes]}
    if shapes != wanted or min(d, d_h) < 1 or classes < TOKENS:
        raise BadInput(f"weights: the tensors are of shapes {shown(shapes, 200)}, which do not fit. Save them again.")
    format = WORD_FORMATS[dtypes.pop()]
    words = {name: rows_of(format, tensors[name]) for name in NAMES}
    for rows in words.values():
        for row in rows:
            for word in row:
                format.denominator_bits(word)  # refuses NaN and infinity
    return format, is_skipped, {"d": d, "d_h": d_h, "classes": classes}, words


def _limit(folder: str, name: str, value: object) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise BadInput(f"folder={folder!r}: the certificate's {name} is {shown(value)}, no count. Save it again.")
    return value


def _margin(folder: str, about: Mapping[str, object]) -> tuple[float, bool]:
    """The margin, and whether it is one of leads times the softmax's sum."""
    margin, of_sum = about.get("margin"), about.get("margin_scaled")
    found = of_sum if margin is None else margin
    if (margin is None) == (of_sum is None) or not is_margin(found):
        raise BadInput(f"folder={folder!r}: the certificate states no positive margin, or two. Save it again.")
    if about.get("margin_per_count") is not None:
        raise BadInput(f"folder={folder!r}: the certificate has margins per count, of which there are none here.")
    return float(found), margin is None


def _said(digits: int | None, noise: int | None, sha256: str) -> Iterator[tuple[str, object, str]]:
    """What a certificate must say of a file and its region."""
    parts = ("all n0, n1" if digits is None else f"n0, n1 <= {digits}", "all n2" if noise is None else f"n2 <= {noise}")
    inputs = "infinite" if digits is None or noise is None else str((digits + 1) ** 2 * (noise + 1) * 3)
    yield "task", TASK, "Save both again."
    yield "weights_sha256", sha256, "The certificate is about other weights: save both again."
    yield "region", ", ".join(parts), "Save both again."
    yield "inputs_are", INPUTS_ARE, "Save both again."
    yield "inputs_covered", inputs, "Save both again."
    yield "assumptions", [], "Save both again."


# ---- The theorem


def state_prompts(stored: StoredPrompts) -> Theorem:
    """States that the stored model answers all prompts of its certificate, with the three-line proof."""
    name = f"count01_d{stored.sizes['d']}_h{stored.sizes['d_h']}"
    check, shift = check_of(stored)
    statement = f"file_answers weights {_claim(stored)} {_margin_over(stored, shift)} {shift}"
    digits, noise = ("any number of" if n is None else f"up to {n}" for n in (stored.digits, stored.noise))
    due = "4 where n0 >= n1, else 5" if stored.is_thesis else "4 where n1 > n0, else 5"
    margin = "a margin over the sum of all exp(score)" if stored.is_over_sum else "a margin"
    comment = (
        f"(* {digits} zeros (n0) and ones (n1) each, {noise} twos, in any order, between BOS and =: after = the answer",
        f"   ({due}), after 4 and after 5 EOS has the largest logit, by {margin}.",
        f"   Words of the weights file with SHA-256 {stored.sha256}. *)",
    )
    text = file_of(comment, PREAMBLE, "prompt_file", check.weights, name, statement)
    proof = proof_of(name, f"check_prompts_correct weights {check.scale} {check.how}")
    return Theorem(name, statement, text + proof, "PromptsCorrect")


@dataclass(frozen=True)
class PromptCheck:
    """The arguments of the check in Coq's syntax: `check_prompts weights scale how claim`."""

    weights: str
    scale: int
    how: str
    claim: str

    @property
    def call(self) -> str:
        return f"check_prompts {self.weights} ({self.scale}) {self.how} {self.claim}"


def check_of(stored: StoredPrompts) -> tuple[PromptCheck, int]:
    """Writes a stored model and its claim in Coq's syntax; the margin is over 2^ of the second result."""
    scale = stored.denominator_bits
    shift = max(4 * scale, MARGIN_BITS - math.frexp(stored.margin)[1])
    sizes = f"words_dim := {stored.sizes['d']}%nat; words_head := {stored.sizes['d_h']}%nat;"
    weights = (
        f"{{|\n  words_format := {stored.format.name}; words_skip := {str(stored.is_skipped).lower()};\n  {sizes}"
        f" words_answers := {stored.sizes['classes']}%nat;\n"
        + ";\n".join(
            f"  {field}_words := {tensor_in_coq(stored.words[name], is_vector=name == 'b_out')}"
            for name, field in NAMES.items()
        )
        + "\n|}"
    )
    precision, bits = bits_of(stored)
    how = f"{{| bracket_bits := {bits}; interval_precision := {precision}%positive |}}"
    claim = f"{_claim(stored)} {_margin_over(stored, shift)} {shift}"
    return PromptCheck(weights, scale, how, claim), shift


def _claim(stored: StoredPrompts) -> str:
    limits = ("None" if n is None else f"(Some {n})" for n in (stored.digits, stored.noise))
    return " ".join([*limits, str(stored.is_thesis).lower(), str(stored.is_over_sum).lower()])


def _margin_over(stored: StoredPrompts, shift: int) -> int:
    """The margin as an integer over 2^shift, rounded down."""
    n, m = stored.margin.as_integer_ratio()
    return (n << shift) // m


def bits_of(stored: StoredPrompts) -> tuple[int, int]:
    """The bits of intervals and of brackets around exponentials, enough for the least one; no theorem depends on it."""
    counts = [n.bit_length() for n in (stored.digits, stored.noise) if n is not None]
    precision = SPARE_BITS + sum(counts) + max(0, -math.frexp(stored.margin)[1])
    E, W_Q, W_K = ([[*map(stored.format.number, row)] for row in stored.words[name]] for name in ("E", "W_Q", "W_K"))
    queries, keys = (_product(E, W) for W in (W_Q, W_K))
    scores = [sum(q * k for q, k in zip(query, key, strict=True)) for query in queries for key in keys]
    spread = max([*scores, 0.0]) - min([*scores, 0.0])
    more = spread / math.log(2)
    return precision, precision + (math.ceil(more) if more < MOST_SPREAD else MOST_SPREAD)


def _product(rows: Iterable[list[float]], W: list[list[float]]) -> list[list[float]]:
    return [[sum(x * w for x, w in zip(row, column, strict=True)) for column in zip(*W, strict=True)] for row in rows]
