"""Certificates about transformers that count inductively: every input is run in balls (docs/checker.md)."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Literal

from flint import arb

from verify.checker.any_order import opened
from verify.checker.computed_decoder import ComputedDecoder
from verify.checker.counting_task import LONGEST, STARTED, CountingTask, Tokens
from verify.checker.decoder import Decoder, ExactDecoder
from verify.checker.exponentials import BITS
from verify.checker.formats import BinaryFormat
from verify.checker.moved_decoder import MovedDecoder
from verify.checker.reading import NOT_CHECKABLE, Refusal, as_text, require
from verify.checker.records import CountingCertificate
from verify.checker.statement import certificate_of, claimed_margin, compare

Gaps = Callable[[Tokens, Sequence[int | None], int], list[list[arb]]]  # of tokens, what is due, and a shift
MOST_WORK = 10**8  # numbers of the file times tokens that are run
ASSUMED = ["torch.export traced the module faithfully", "the module is called on a batch of one input"]
CONTRACT = [
    "each operation is rounded to nearest, or kept with 2p + 2 bits; sums in any order, products fused or not",
    "exp and erf within 8 u of their value, GELU within 8 u of |x|, exp(0) = 1",
    "LayerNorm in one pass, two passes or by Welford",
]
RIGHT = "right means: at every judged position the right class has strictly the largest logit"


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("inductive", weights, certificate, CountingCertificate)
    verdict, fmt, trusted = opened("transformer", c)
    tables = c.get("tables")
    model = ExactDecoder(weights, tables)
    ways: Sequence[Gaps] = [partial(model.gaps, bits=bits) for bits in BITS]
    ways = _in_format(weights, model, fmt, tables) if fmt else ways
    task, p = CountingTask(c["parameters"]), c["parameters"]
    due = {"name": task.name, "model": "transformer", **model.says, **task.sizes}
    due |= {name: x for name, x in p.items() if fmt and name in ("precision", "accumulate")}
    due |= {"distinct_start": True} if task.distinct else {}
    compare(c, {"parameters": due, "assumptions": [*ASSUMED, *(CONTRACT if fmt else []), RIGHT]})
    require((model.tokens, model.classes) == (task.tokens, task.classes), "weights: other tokens or classes")
    if verdict == "REFUTED":
        _refute(ways, model, task, c)
        return verdict, trusted
    longest = _longest(model, task, c["length"])
    names_it = "longest" not in c or c["length"] == "all" and c["longest"] == longest
    require(names_it, "longest: is not what the table of positions holds")
    claimed_margin(c)
    rooms = [None] if model.positions is None else range(model.positions - model.bos, 0, -1)
    inputs = work = 0
    for shift, room in enumerate(rooms):
        prefixes: dict[tuple[int, int], int] = {}
        for tokens in task.longest_inputs(longest, room):
            work += len(tokens) * model.size
            require(work <= MOST_WORK and len(tokens) <= LONGEST, "so many inputs are not run again", NOT_CHECKABLE)
            _show(ways, fmt is not None, model.bos, task, tokens, shift, c)
            place = 0
            for token in tokens:
                place = prefixes.setdefault((place, token), len(prefixes) + 1)
        inputs += len(prefixes)
    compare(c, {"inputs_covered": str(inputs)})
    says = c.get("accuracy", {})
    ranges = ("1..50", f"51..{128 if task.name.startswith('first') else 100}")
    is_all = isinstance(says, dict) and {*says} <= {*ranges} and all(x == ["1/1", "1/1"] for x in says.values())
    is_all = is_all and (says != {} or "accuracy" not in c)
    require(is_all, "accuracy: is not that of a proof")
    return verdict, trusted


def _longest(model: Decoder, task: CountingTask, length: int | Literal["all"] | None) -> int:
    """The length that the certificate names: all that there are, or as many tokens after a leading one."""
    most, leading = task.ends_at(), task.name in STARTED
    room = None if model.positions is None else model.positions - model.bos
    if length == "all":
        require(task.M is None, "length: number words end it")
        is_checkable = room is not None and room <= LONGEST
        require(is_checkable, "proofs of all lengths, or of long strings, are not checked", NOT_CHECKABLE)
        return room or 0
    tops = [n for n in (most, None if room is None else room - leading) if n is not None]
    if type(length) is not int or not 0 < length <= min([*tops, length]):
        raise Refusal(f"length: {as_text(length)[:80]} is none")
    require(task.M is not None or length != room, "length: is all that there are")
    require(length <= LONGEST, f"strings of more than {LONGEST} tokens are not run", NOT_CHECKABLE)
    return length


def _in_format(weights: bytes, model: Decoder, fmt: BinaryFormat, tables: object) -> list[Gaps]:
    """Balls of single numbers, and each error by itself for the strings that these leave open."""
    computed = cache(lambda: ComputedDecoder(weights, fmt, tables))
    moved = [MovedDecoder(model, fmt).gaps] * MovedDecoder.follows(model, fmt)
    return [lambda tokens, due, shift: computed().gaps(tokens, due, shift, BITS[0]), *moved]


def _found(ways: Sequence[Gaps], tokens: Tokens, due: Sequence[int | None], shift: int) -> Iterator[list[list[arb]]]:
    """What each way finds in turn. Raises: Refusal where the last one does, or for more than not being followed."""
    for gaps in ways:
        try:
            yield gaps(tokens, due, shift)
        except Refusal as refusal:
            if refusal.exit_code != NOT_CHECKABLE or gaps is ways[-1]:
                raise


def _show(
    ways: Sequence[Gaps],
    is_rounded: bool,
    bos: bool,
    task: CountingTask,
    tokens: Tokens,
    shift: int,
    c: CountingCertificate,
) -> None:
    """Every judged position of an input has the margin, and the one times the number of positions that it sees.

    In a dtype every order has half of both, and no order is shown to have less than all of them.
    """
    margin, scaled, due = arb(c["margin"]), arb(c.get("margin_scaled", 0.0)), task.due(tokens)
    share, named = 1 + is_rounded, f"{list(tokens)[:20]}, shift {shift}"
    for found in _found(ways[:2], tokens, due, shift):
        gaps = [(x, x * (i + bos)) for i, row in enumerate(found, 1) for x in row]
        has_less = any(x < margin or y < scaled for x, y in gaps)
        require(not has_less, f"margin: {named} has less")
        if all(share * x >= margin and share * y >= scaled for x, y in gaps):
            return
    raise Refusal(f"{'half of the margin' if is_rounded else 'margin:'} is not shown for {named}", NOT_CHECKABLE)


def _refute(ways: Sequence[Gaps], model: Decoder, task: CountingTask, c: CountingCertificate) -> None:
    """One input decides, in balls: at its last position some other logit is at least the due one."""
    case, room = c["counterexample"], None if model.positions is None else model.positions - model.bos
    tokens, shift, leading = (*case["input"],), case["shift"], task.name in STARTED
    is_there = shift == 0 if room is None else shift < room
    is_there = is_there and task.is_input(tokens, None if room is None else room - shift)
    require(is_there, f"counterexample: {list(tokens)[:20]} at shift {shift} is no input")
    due = task.due(tokens)
    right, last = due[-1], len(tokens) - 1
    require(right is not None, "counterexample: its last position is not judged")
    said = {"position": last, "expected": (right or 0) + (task.m is not None), "length": last + 1 - leading}
    compare(case, said | {"start": tokens[0] if leading else None})
    require(c["margin"] is None or c["margin"] <= 0, "margin: must not be above zero")
    for *_, row in _found(ways, tokens, due, shift):
        require(not all(x > 0 for x in row), f"counterexample: {list(tokens)[:20]} is answered rightly")
        if any(x <= 0 for x in row):
            return
    raise Refusal("the sign of a difference of logits does not show", NOT_CHECKABLE)
