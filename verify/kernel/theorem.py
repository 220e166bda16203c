"""A Coq file that states and proves that a stored model counts, or tells parity."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from verify.kernel.hints import MOST_FLAGS
from verify.kernel.stored import PARITY, TENSORS, StoredProof, Words

VECTORS = ("e_BOS", "b_1", "b_2")
MARGIN_BITS = 40  # significant bits, at least, of the margins that a theorem states
WEIGHT_BITS, EXP_PRECISION = 72, 84  # of mixing weights with softmax, and of the intervals they come from
LINE_BITS = 16  # of the slopes of lines below undecided neurons
MOST_UNDECIDED = 6  # undecided neurons in one region whose 2^6 cases are looked at
MOST_MULTISETS = 100_000  # of L tokens: up to here regions are split without a hint, down to single multisets
MOST_SPLITS = 200  # in a row, more than any region of so few sets allows
SAYS = {"histogram": "file_counts", PARITY: "file_tells_parity"}
PREAMBLE = (
    "From Coq Require Import List ZArith.",
    "From Weightproof Require Import Model Stored Check Correct.",
    "Import ListNotations.",
    "Open Scope Z_scope.",
)
OF_RUNS = "From Weightproof Require Import Runs RunChecks RunsCorrect."  # what a theorem in a format needs besides


@dataclass(frozen=True)
class Theorem:
    """A theorem's name, its statement, the whole Coq file that proves it, and what that needs of the library."""

    name: str
    statement: str
    text: str
    library: str = "Correct"  # the source file that it needs compiled, with all that this one requires


def state(stored: StoredProof) -> Theorem:
    """States that the stored model is right, by the margins of its certificate, with its three-line proof."""
    name, inputs = theorem_name(stored), check_inputs(stored)
    margins, of_type, of_what = (
        ("margin", "Z", "The margin")
        if stored.task == PARITY
        else ("margins", "list Z", f"The margins for the counts 1, ..., {stored.sizes['L']}")
    )
    statement = f"{SAYS[stored.task]}{_in_format(stored)} weights {margins} {inputs.shift}"
    check, *formats = inputs.check.split()
    lines = [
        f"(* {_comment(stored)} *)",
        "",
        *PREAMBLE,
        *([] if stored.run_in is None else [OF_RUNS]),
        "",
        "(* The file: its sizes, and its tensors as the words that it holds. *)",
        f"Definition weights : file := {inputs.weights}.",
        "",
        f"(* {of_what}, over 2^{inputs.shift}. *)",
        f"Definition {margins} : {of_type} := {inputs.margins}.",
        "",
        "(* How the check is to go about it; the theorem does not depend on it. *)",
        f"Definition how : effort := {inputs.how}.",
        "",
        f"Theorem {name} : {statement}.",
        "",
    ]
    proof = proof_of(name, f"{' '.join([f'{check}_correct', *formats])} weights {inputs.scale} how")
    return Theorem(name, statement, "\n".join(lines) + proof, "Correct" if stored.run_in is None else "RunsCorrect")


def file_of(
    comment: Iterable[str], preamble: Iterable[str], of_type: str, weights: str, name: str, statement: str
) -> str:
    """A Coq file up to the statement: a comment, what it requires, and the words of the weights file."""
    lines = [
        *comment,
        "",
        *preamble,
        "",
        "(* The file: its sizes, and its tensors as the words that it holds. *)",
        f"Definition weights : {of_type} := {weights}.",
        "",
        f"Theorem {name} : {statement}.",
        "",
    ]
    return "\n".join(lines)


def proof_of(name: str, lemma: str) -> str:
    """The proof by a lemma whose one premise is that a check says true, and the axioms that the theorem rests on."""
    return f"Proof.\n  apply ({lemma}).\n  vm_cast_no_check (eq_refl true).\nQed.\n\nPrint Assumptions {name}.\n"


@dataclass(frozen=True)
class CheckInputs:
    """The check and its arguments, in Coq's syntax: `check weights scale how margins shift`."""

    check: str
    weights: str
    scale: int
    how: str
    margins: str
    shift: int


def check_inputs(stored: StoredProof) -> CheckInputs:
    """Writes a stored model, its margins, and how to check it, in Coq's syntax."""
    scale = stored.denominator_bits
    margins, shift = rounded_margins(stored, scale)
    T = stored.sizes["T"]
    sets = [f"[{'; '.join(_flags(found, T) for found in sets)}]" for sets in sets_to_split_by(stored)]
    bits = weight_bits(stored, scale)
    sizes = " ".join(f"file_{name} := {stored.sizes[name]}%nat;" for name in ("T", "L", "d", "p", "classes"))
    weights = (
        f"{{|\n  file_format := {stored.format.name}; file_kind := {stored.kind.capitalize()};"
        f" file_softmax := {str(stored.is_softmax).lower()};\n  {sizes}\n"
        f"  file_first_count := {stored.sizes['first_count']}%nat;\n"
        + ";\n".join(
            f"  {name}_words := {tensor_in_coq(stored.words[name], is_vector=name in VECTORS)}" for name in TENSORS
        )
        + "\n|}"
    )
    how = (
        f"{{|\n  weight_bits := {bits}; exp_precision := {EXP_PRECISION}%positive; line_bits := {LINE_BITS};"
        f" most_undecided := {MOST_UNDECIDED}%nat; splits := {MOST_SPLITS if sets else 0}%nat;\n"
        f"  clusters := [{'; '.join(sets)}]\n|}}"
    )
    is_parity = stored.task == PARITY
    check = f"{'check_parity' if is_parity else 'check'}{_in_format(stored)}"
    said = str(margins[0]) if is_parity else f"[{'; '.join(map(str, margins))}]"
    return CheckInputs(check, weights, scale, how, said, shift)


def _in_format(stored: StoredProof) -> str:
    return "" if stored.run_in is None else f"_in {stored.run_in}"


def sets_to_split_by(stored: StoredProof) -> list[Sequence[Container[int]]]:
    """Lists for each own token the sets of tokens that the check may split by, in the order in which it tries them.

    They are the clusters of the certificate's search; where it names none, halves of the alphabet, quarters, ..., of
    models with so few multisets of tokens that splitting down to single ones ends in time. There are none for lin,
    whose slots differ, and where they would be longer than a theorem is to be.
    """
    T, L = stored.sizes["T"], stored.sizes["L"]
    if stored.kind == "lin":
        return []
    few = halves(T) if math.comb(T + L - 1, L) <= MOST_MULTISETS else []
    found: list[Sequence[Container[int]]] = [stored.sets.get(t, few) for t in range(T)]
    return found if T * sum(map(len, found)) <= MOST_FLAGS else []


def halves(T: int) -> list[range]:
    """First halves of the alphabet, of its halves, and so on.

    >>> halves(4)
    [range(0, 2), range(0, 1), range(2, 3)]
    """
    found, blocks = list[range](), [range(T)]
    while blocks:
        pairs = [(block[: len(block) // 2], block[len(block) // 2 :]) for block in blocks if len(block) > 1]
        found += [first for first, _ in pairs]
        blocks = [half for pair in pairs for half in pair]
    return found


def theorem_name(stored: StoredProof) -> str:
    """A Coq name that says which model and which sizes.

    >>> re.sub("[^A-Za-z0-9]+", "_", "dot+sftm")
    'dot_sftm'
    """
    sizes = "_".join(f"{name}{stored.sizes[name]}" for name in ("T", "L", "d", "p"))
    return f"{re.sub('[^A-Za-z0-9]+', '_', stored.model)}_{sizes}{_aim(stored)}"


def _aim(stored: StoredProof) -> str:
    return ("" if stored.task == PARITY else "_counts") + _in_format(stored).replace(" ", "_")


def rounded_margins(stored: StoredProof, scale: int) -> tuple[list[int], int]:
    """The certificate's margins as integers over 2^shift, rounded down, with softmax by one unit more.

    The unit more is for the intervals around exponentials, which are wider than the certificate's. In a format it is
    half of them: the check bounds roundings in its own way, and may find more of them than the certificate did.
    """
    parts = 1 if stored.run_in is None else 2
    shift = max(scale, MARGIN_BITS + parts - 1 - math.frexp(min(stored.margins))[1])
    ratios = [margin.as_integer_ratio() for margin in stored.margins]
    return [(n << shift) // (parts * m) - stored.is_softmax for n, m in ratios], shift


def weight_bits(stored: StoredProof, scale: int) -> int:
    """The power of two that the check multiplies mixing weights by, before it rounds exponentials or sqrt(d).

    Scores without softmax are integers over 16^scale sqrt(d), so sqrt(d) times that is rounded; A is exact.
    """
    if stored.is_softmax:
        return 0 if has_equal_scores(stored) else WEIGHT_BITS
    return 0 if stored.kind in ("lin", PARITY) else max(0, WEIGHT_BITS - 4 * scale)


def has_equal_scores(stored: StoredProof) -> bool:
    """Whether all scores are plainly equal, so that softmax needs no exponential: W_Q, W_K or A is one number."""
    matrices = (stored.words["A"],) if stored.kind == "lin" else (stored.words["W_Q"], stored.words["W_K"])
    if stored.kind == "lin":
        return all(len({*row}) == 1 for row in matrices[0])
    return any(not any(map(any, rows)) for rows in matrices)


def tensor_in_coq(rows: Words, *, is_vector: bool) -> str:
    """A tensor as a list of words, or of rows of words."""
    if is_vector:
        (words,) = rows or ((),)  # a second row would be left out
        return _row(words)
    return "[" + ";\n    ".join(map(_row, rows)) + "]"


def _row(words: Iterable[int]) -> str:
    return "[" + "; ".join(f"{word:#x}" if word else "0" for word in words) + "]"


def _flags(members: Container[int], T: int) -> str:
    return "[" + "; ".join(str(t in members).lower() for t in range(T)) + "]"


def _comment(stored: StoredProof) -> str:
    # a file may name any text as its claim, and a comment must not end early
    is_an_id = stored.claim is not None and re.fullmatch(r"[\w.+-]{1,40}", stored.claim)
    claim = f", claim {stored.claim}" if is_an_id else ""
    sizes = ", ".join(f"{name}={stored.sizes[name]}" for name in ("T", "L", "d", "p", "classes"))
    run = "" if stored.run_in is None else f",\n   whatever a run in {stored.run_in} computes, in any order"
    what = "parity" if stored.task == PARITY else "count"
    return (
        f"{stored.model} {sizes}, {stored.format.name}{claim}: on every one of its {stored.sizes['T']}^"
        f"{stored.sizes['L']} sequences,\n   at every position, the right {what} has the largest logit, "
        f"by a margin{run}.\n"
        f"   Words of the weights file with SHA-256 {stored.sha256}."
    )
