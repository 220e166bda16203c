"""The words of a saved modular adder, what its certificate says of all pairs, and the theorem that both become."""

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
from verify.kernel.theorem import Theorem, file_of, proof_of, tensor_in_coq

TASK = "modular"
LAYER = "layers.0."
HEAD = {"W_Q": "q", "W_K": "k", "W_V": "v", "W_O": "o"}  # a row of words for each head
NAMES = {
    "E": "tokens", "positions": "positions", "W_1": "mlp_1", "b_1": "bias_1", "W_2": "mlp_2", "W_out": "readout",
    "b_out": "bias_out",
}  # fmt: skip
VECTORS = ("b_1", "b_out")
MOST_PAIRS = 1 << 22
MADE_BY = ("construction", "frequencies", "orbit")  # how the model was made, of which the theorem says nothing
SAID = {
    "schema",
    "reading",
    "verdict",
    "counterexample",
    "reason",
    "margin",
    "margin_per_count",
    "parameters",
    "tightest",
}
RIGHT = "right means: the class (a + b) mod P has strictly the largest logit"
PREAMBLE = (
    "From Coq Require Import List ZArith.",
    "From Weightproof Require Import Model Stored Pairs PairChecks PairsCorrect.",
    "Import ListNotations.",
    "Open Scope Z_scope.",
)


@dataclass(frozen=True)
class StoredPairs:
    """The words of a file by tensor, those of heads one head after another, and its certificate's margin."""

    format: WordFormat
    is_skipped: bool  # is what a layer reads added to what it writes?
    sizes: Mapping[str, int]  # P, heads, d, d_h, d_v, p
    words: Mapping[str, Words]
    margin: float
    sha256: str
    unsaid: tuple[str, ...] = ()

    def denominator_bits(self, *names: str) -> int:
        """The least s for which every weight of these tensors is an integer over 2^s."""
        found = {word for name in names for row in self.words[name] for word in row}
        return max(map(self.format.denominator_bits, found), default=0)


def read_pairs(folder: str, data: bytes, about: Mapping[str, object]) -> StoredPairs:
    """Reads what `verify modular --save` wrote, of a model of one layer.

    Raises: BadInput for another model, or a certificate that says anything else than the file, or no PROVED in the
    real reading.
    """
    check_says(folder, about, (REAL, *DECIDED))
    format, is_skipped, sizes, words = _read(data)
    p = about.get("parameters")
    wanted: dict[str, object] = {name: sizes[name] for name in ("P", "heads", "d", "d_h", "p")}
    wanted |= {"layers": 1, "neurons": sizes["p"], "dtype": format.name}
    if not isinstance(p, dict) or (odd := sorted({*p} - {*wanted, *MADE_BY})):
        found = shown(odd[0] if isinstance(p, dict) else p)
        raise BadInput(f"folder={folder!r}: the certificate's parameters hold {found}, of which no theorem speaks.")
    check_says(folder, p, ((name, value, "Save both again.") for name, value in wanted.items()))
    margin = about.get("margin")
    if not is_margin(margin):
        raise BadInput(f"folder={folder!r}: the certificate states no positive margin. Save it again.")
    stored = StoredPairs(format, is_skipped, sizes, words, float(margin), hashlib.sha256(data).hexdigest())
    said = list(_said(stored))
    check_says(folder, about, said)
    _check_tightest(folder, about, sizes["P"])
    known = SAID | {key for key, _, _ in said}
    unsaid = sorted(
        [*(about.keys() - known), "tightest.input", *(f"parameters.{name}" for name in MADE_BY if name in p)]
    )
    return StoredPairs(format, is_skipped, sizes, words, float(margin), stored.sha256, tuple(unsaid))


def _read(data: bytes) -> tuple[WordFormat, bool, dict[str, int], dict[str, Words]]:
    """The words of a file.

    Raises: BadInput for a tensor that such a model has not, one that is missing, or one of another shape.
    """
    tensors = tensors_of(data)
    is_skipped = skip_of(tensors)
    place = {name: name if name in ("E", "positions", "W_out", "b_out") else LAYER + name for name in (*NAMES, *HEAD)}
    dtypes = {str(entry["dtype"]) for entry in tensors.values()}
    if {*tensors} != {*place.values()} or len(dtypes) != 1 or not dtypes <= WORD_FORMATS.keys():
        raise BadInput(
            f"weights: the file holds tensors {shown(sorted(tensors))} of {sorted(dtypes)}. The kernel knows modular "
            f"adders of one layer, with {', '.join(place.values())}, of one of {', '.join(sorted(WORD_FORMATS))}."
        )
    shapes = {name: list(tensors[at]["shape"]) for name, at in place.items()}
    heads, d, d_h = shapes["W_Q"] if len(shapes["W_Q"]) == 3 else (0, 0, 0)
    d_v = shapes["W_V"][-1] if len(shapes["W_V"]) == 3 else 0
    P, p = math.prod(shapes["b_out"]), math.prod(shapes["b_1"])
    wanted = {"E": [P + 1, d], "positions": [3, d], "W_Q": [heads, d, d_h], "W_K": [heads, d, d_h]}
    wanted |= {"W_V": [heads, d, d_v], "W_O": [heads, d_v, d], "W_1": [d, p], "b_1": [p], "W_2": [p, d]}
    wanted |= {"W_out": [d, P], "b_out": [P]}
    if shapes != wanted or min(heads, d, d_h, d_v) < 1 or P < 2:
        raise BadInput(f"weights: the tensors are of shapes {shown(shapes, 200)}, which do not fit. Save them again.")
    if P * P > MOST_PAIRS:
        raise BadInput(f"weights: P={P}: more than {MOST_PAIRS} pairs are not decided again.")
    format = WORD_FORMATS[dtypes.pop()]
    words = {name: rows_of(format, tensors[at]) for name, at in place.items()}
    for word in {word for rows in words.values() for row in rows for word in row}:
        format.denominator_bits(word)  # refuses NaN and infinity
    return format, is_skipped, {"P": P, "heads": heads, "d": d, "d_h": d_h, "d_v": d_v, "p": p}, words


def _said(stored: StoredPairs) -> Iterator[tuple[str, object, str]]:
    """What a certificate must say of a file."""
    pairs, skip, again = str(stored.sizes["P"] ** 2), "x + " * stored.is_skipped, "Save both again."
    formula = (
        f"tokens a b =, read at =: x = E[token] + position; x = {skip}sum of heads' softmax(q k) v W_O; "
        f"x = {skip}ReLU(x W_1 + b_1) W_2; logits = x W_out + b_out; evaluated in real arithmetic"
    )
    yield "task", TASK, again
    yield "weights_sha256", stored.sha256, "The certificate is about other weights: save both again."
    yield "inputs_covered", pairs, again
    yield "counts", {"right": pairs, "wrong": "0"}, again
    yield "assumptions", [formula, RIGHT], again
    yield "margin_per_count", None, again


def _check_tightest(folder: str, about: Mapping[str, object], P: int) -> None:
    """Raises: BadInput unless `tightest` says a pair and the margin alone. That no pair has less is in the theorem."""
    tightest = about.get("tightest")
    pair = tightest.get("input") if isinstance(tightest, dict) else None
    if not isinstance(pair, list) or len(pair) != 2 or not all(type(t) is int and 0 <= t < P for t in pair):
        raise BadInput(f"folder={folder!r}: the certificate's tightest input is {shown(pair)}, no pair. Save it again.")
    check_says(folder, about, [("tightest", {"input": pair, "margin": about["margin"]}, "Save it again.")])


# ---- The theorem


def state_pairs(stored: StoredPairs) -> Theorem:
    """States that the stored model adds all pairs by the margin of its certificate, with the three-line proof."""
    sizes = stored.sizes
    name = "modular_" + "_".join(f"{size}{sizes[size]}" for size in ("P", "d", "p"))
    check = check_of(stored)
    statement = f"file_adds weights {check.margin} {check.shift}"
    comment = (
        f"(* On each of the {sizes['P']}^2 pairs a, b the class (a + b) mod {sizes['P']} has the largest logit,",
        f"   by a margin. Words of the weights file with SHA-256 {stored.sha256}. *)",
    )
    text = file_of(comment, PREAMBLE, "pair_file", check.weights, name, statement)
    proof = proof_of(name, f"check_pairs_correct weights {check.scales}")
    return Theorem(name, statement, text + proof, "PairsCorrect")


@dataclass(frozen=True)
class PairCheck:
    """The arguments of the check in Coq's syntax: `check_pairs weights scales margin shift`."""

    weights: str
    scales: str
    margin: int
    shift: int

    @property
    def call(self) -> str:
        return f"check_pairs {self.weights} {self.scales} ({self.margin}) {self.shift}"


def check_of(stored: StoredPairs) -> PairCheck:
    """Writes a stored model and its margin, a multiple of 2^-shift, in Coq's syntax."""
    scales = scales_of(stored)
    n, m = stored.margin.as_integer_ratio()
    shift = max(sum(scales.values()) - scales["score"], m.bit_length() - 1)
    sizes = {"modulus": "P", "width": "d", "key_width": "d_h", "value_width": "d_v", "neurons": "p"}
    skip = str(stored.is_skipped).lower()
    fields = [f"pair_format := {stored.format.name}", f"pair_keeps_stream := {skip}"]
    fields += [f"pair_{field} := {stored.sizes[name]}%nat" for field, name in sizes.items()]
    fields += [
        f"{field}_words := {tensor_in_coq(stored.words[name], is_vector=name in VECTORS)}"
        for name, field in NAMES.items()
    ]
    fields.append(f"heads_words := [{'; '.join(_heads(stored))}]")
    by_tensor = f"{{| {'; '.join(f'{name}_scale := {scale}' for name, scale in scales.items())} |}}"
    return PairCheck("{|\n  " + ";\n  ".join(fields) + "\n|}", by_tensor, (n << shift) // m, shift)


def scales_of(stored: StoredPairs) -> dict[str, int]:
    """For each step of the model the s for which its weights are integers over 2^s, and so are the biases after it."""
    bits = stored.denominator_bits
    scales = {"placed": bits("E", "positions"), "score": bits("W_Q", "W_K"), "value": bits("W_V"), "out": bits("W_O")}
    so_far = sum(scales.values()) - scales["score"]
    scales["read"] = max(bits("W_1"), bits("b_1") - so_far)
    scales["write"] = bits("W_2")
    so_far += scales["read"] + scales["write"]
    return scales | {"logit": max(bits("W_out"), bits("b_out") - so_far)}


def _heads(stored: StoredPairs) -> Iterable[str]:
    for i in range(stored.sizes["heads"]):
        of_head = []
        for name, field in HEAD.items():
            rows = stored.words[name]
            n = len(rows) // stored.sizes["heads"]
            of_head.append(f"{field}_words := {tensor_in_coq(rows[i * n : (i + 1) * n], is_vector=False)}")
        yield f"{{| {'; '.join(of_head)} |}}"
