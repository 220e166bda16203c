"""Count01 by running the module: replays, searches near ties, and one slow order of every sum."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from constructions.count01_arrays import TOKENS, logits_at_counts
from constructions.model_arrays import LARGEST, ModelArrays, module_of, name_of
from verify.arithmetic.evaluation import ORDERS, Evaluation
from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.margins import margins_of
from verify.arithmetic.rounding import add
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import numbers
from verify.tasks.count01.task import EQUALS, PromptDomain, SideCell, Triple, cells, string

if TYPE_CHECKING:
    from torch import Tensor

    Kernel = Callable[[Tensor], Tensor]

    from verify.tasks.count01.model import Count01Model

LONGEST_STRING = 1 << 22  # tokens: a run of more takes a GiB
BATCH_TOKENS = 1 << 16
SIMULATED = ("left to right", "right to left")  # the orders of sums that are run
LONGEST_SIMULATED = 40  # digits: a simulated operation costs what a thousand of a kernel cost

Counted = TypeVar("Counted")  # a string of one length, or its digits


def fails(logits: list[float], expected: int) -> bool:
    """Whether the expected logit is not strictly the largest; a NaN anywhere fails.

    >>> fails([0.0, 1.0], 1), fails([1.0, 1.0], 1), fails([float("nan"), 1.0], 1)
    (False, True, True)
    """
    return not all(logits[expected] > x for j, x in enumerate(logits) if j != expected)


def replay(model: Count01Model, n: Triple, last: int, expected: int) -> dict[str, object]:
    """The model's own answer on one input: as a string, or by counts where the string is too long, or for arrays."""
    if isinstance(model, ModelArrays) and model.dtype != "bfloat16" and not model.has_norm:
        values = logits_at_counts(model, n, last).tolist()
        return _answered(n, last, expected, values, f"numpy {model.dtype} on token counts")
    import torch

    model = module_of(model)
    if sum(n) <= LONGEST_STRING:
        how, logits = "the string", model.next_logits(torch.tensor(string(n, last)))
    else:
        counts = torch.tensor([1, *n, 1, 0, 0, 0], dtype=torch.float64)
        counts[last] = 1
        how, logits = "token counts (the string is too long)", model.logits_at_counts(counts, last)
    return _answered(n, last, expected, logits.double().tolist(), f"torch {name_of(model.dtype)} on {how}")


def _answered(n: Triple, last: int, expected: int, values: list[float], replayed: str) -> dict[str, object]:
    """What the logits of a run say of an input."""
    return {
        **describe(n, last, expected),
        "predicted": name(predicted(values)),
        "logits": [x if x == x and abs(x) != float("inf") else None for x in values],
        "fails": fails(values, expected),
        "replayed": replayed,
    }


def predicted(logits: list[float]) -> int | None:
    """The argmax of finite logits; the first of equals, as torch and numpy take it."""
    if any(x != x for x in logits):
        return None
    return max(range(len(logits)), key=lambda j: logits[j])


def name(token: int | None) -> str:
    """A token as text; a ninth class has none, and NaN logits predict nothing."""
    if token is None:
        return "NaN"
    return TOKENS[token] if token < len(TOKENS) else f"class {token}"


def describe(n: Triple, last: int, expected: int) -> dict[str, object]:
    """An input as a JSON object; the string itself only when it is short."""
    tokens = [TOKENS[t] for t in string(n, last)] if sum(n) <= 60 else None
    return {
        "input": [*n, TOKENS[last]],
        "n0": n[0],
        "n1": n[1],
        "n2": n[2],
        "last": TOKENS[last],
        "tokens": tokens,
        "expected": name(expected),
    }


def sequential_logits(model: Count01Model, tokens: Tensor) -> Tensor:
    """Next-token logits (batch, classes) of tokens (batch, n): every operation rounded, sums left to right.

    The slow reference for "dtype, any order": one order, no wide accumulator, no fused operation.
    """

    import torch

    def dot(x: Tensor, W: Tensor) -> Tensor:
        terms = x.unsqueeze(-1) * W
        return add_up(terms.movedim(-2, 0))

    x, heads = model.E[tokens], []
    seen = x
    if model.has_norm:
        centred = x - (add_up(x.movedim(-1, 0)) / x.shape[-1])[..., None]
        variance = add_up((centred * centred).movedim(-1, 0)) / x.shape[-1]
        seen = centred / (variance + float(model.norm_eps)).sqrt()[..., None] * model.norm_weight + model.norm_bias
    for h in range(model.heads):
        q, k, v = dot(seen[:, -1], model.W_Q[h]), dot(seen, model.W_K[h]), dot(seen, model.W_V[h])
        scores = add_up((q.unsqueeze(1) * k).movedim(-1, 0))
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        share = weights / add_up(weights.movedim(1, 0)).unsqueeze(1)
        heads.append(dot(add_up((share.unsqueeze(-1) * v).movedim(1, 0)), model.W_O[h]))
    attended = add_up(torch.stack(heads))
    stream = x[:, -1] + attended if model.has_skip else attended
    return dot(stream, model.W_out) + model.b_out


def rounded_logits(model: Count01Model, tokens: Tensor, at: Evaluation) -> Array:
    """Next-token logits (batch, classes) of tokens (batch, n) in any format and order, simulated."""
    W = {name: at.tensor(numbers(value)) for name, value in model.named_parameters()}
    x = W["E"][tokens.numpy()]
    last, heads = x[:, -1:], []
    with np.errstate(all="ignore"):
        seen = x
        if model.has_norm:
            seen = at.layer_norm(x, W["norm_weight"], W["norm_bias"], float(model.norm_eps))
        for W_Q, W_K, W_V in zip(W["W_Q"], W["W_K"], W["W_V"], strict=True):
            scores = at.product(at.product(seen[:, -1:], W_Q), np.swapaxes(at.product(seen, W_K), -1, -2))
            heads.append(at.product(at.softmax(scores), at.product(seen, W_V)))
        stream = at.product(np.concatenate(heads, axis=-1), W["W_O"].reshape(-1, W["W_O"].shape[-1]))
        if model.has_skip:
            stream = at.tensor(at(add, last, stream))
        return at.tensor(at(add, at.product(stream, W["W_out"]), W["b_out"]))[:, 0]


def kernels_of(model: Count01Model, fmt: Format, accumulate: Format | None) -> dict[str, Kernel]:
    """Ways to run the model in a format, by name: torch's where it has the dtype, and left to right."""
    import torch

    by_torch = fmt.name in LARGEST and name_of(model.dtype) == fmt.name
    if by_torch and accumulate is None:
        return {
            "torch's kernel": model.next_logits,
            "every operation rounded, left to right": lambda tokens: sequential_logits(model, tokens),
        }

    def simulator(order: str) -> Kernel:
        return lambda tokens: torch.from_numpy(rounded_logits(model, tokens, Evaluation(fmt, accumulate, order)))

    simulated = {f"simulated, {order}": simulator(order) for order in SIMULATED}
    return {"torch's kernel": model.next_logits, **simulated} if by_torch else simulated


def add_up(terms: Tensor) -> Tensor:
    """The sum over the first axis, left to right, rounded after every addition."""
    out = terms[0]
    for term in terms[1:]:
        out = out + term
    return out


def chunks(items: list[Counted], length: int) -> Iterator[list[Counted]]:
    """Batches of at most BATCH_TOKENS tokens."""
    size = max(1, BATCH_TOKENS // (length + 3))
    for start in range(0, len(items), size):
        yield items[start : start + size]


def failed(model: Count01Model, tokens: list[int], expected: int, logits: list[float]) -> dict[str, object]:
    """A failed run as a counterexample."""
    n = (tokens.count(1), tokens.count(2), tokens.count(3))
    found = _answered(n, tokens[-1], expected, logits, f"torch {name_of(model.dtype)} on the string")
    return found | {"tokens": [TOKENS[t] for t in tokens] if len(tokens) <= 64 else None, "fails": True}


def find_failure(
    model: Count01Model, kernels: dict[str, Kernel], labels: str, domain: PromptDomain, start: int, longest: int = 2000
) -> dict[str, object] | None:
    """A failing input of at least `start` digits in the domain, under one of the kernels.

    Tries near-ties with no noise, some and much, in four orders, at growing lengths: it can miss failures.
    """
    length = start
    while length <= longest:
        for cell in cells(labels, domain.lasts):
            candidates = [n for n in near_ties(length, cell) if n in domain]
            for order, tokens in orders(candidates, cell.last):
                for kernel, run in kernels.items():
                    if "simulated" in kernel and length > LONGEST_SIMULATED:
                        continue
                    for n, row in zip(candidates, run(tokens).double().tolist(), strict=True):
                        if fails(row, cell.expected):
                            found = failed(model, string(n, cell.last), cell.expected, row)
                            return {**found, "replayed": f"digits ordered {order}: {kernel}"}
        length = length + 1 if length < 40 else length + length // 4
    return None


def in_a_named_order(
    model: Count01Model, found: dict[str, object], fmt: Format, accumulate: Format | None
) -> dict[str, object]:
    """A failure as an evaluation that can be named computes it, where one is wrong, too; else as it was found.

    Inside matrix products and the softmax results may be kept in a wider format, as torch's kernels of 16 bits do.
    """
    import torch

    if not isinstance(found["tokens"], list):
        return found
    tokens, expected = [TOKENS.index(token) for token in found["tokens"]], TOKENS.index(str(found["expected"]))
    for inner, order in itertools.product((accumulate, *kept_in(fmt, accumulate)), ORDERS):
        at = Evaluation(fmt, inner, order)
        row = rounded_logits(model, torch.tensor([tokens]), at)[0].tolist()
        if fails(row, expected):
            again = failed(model, tokens, expected, row)
            kept = {} if inner is accumulate or inner is None else {"kept": inner.name}
            inside = "".join(f", kept in {name} inside" for name in kept.values())
            return {**again, "replayed": f"simulated, {order}{inside}", "run_as": at.named() | kept}
    return found


def kept_in(fmt: Format, accumulate: Format | None) -> tuple[Format, ...]:
    """The format that keeps results with 2p + 2 bits, beyond that of sums, where the contract has none of its own.

    >>> [x.name for x in kept_in(FORMATS["float16"], None)]
    ['float32']
    """
    is_plain = accumulate is None and fmt.name != "tf32"
    return tuple(x for x in (FORMATS["float32"],) if is_plain and x.p >= 2 * fmt.p + 2)


def near_ties(length: int, cell: SideCell) -> list[Triple]:
    """Prompts of one length close to the boundary of a side, with several amounts of noise."""
    out = []
    for noise in sorted({0, 1, length // 10, length // 2, length - 1, length} & set(range(length + 1))):
        spare = length - noise - sum(cell.side.base)
        if spare >= 0:
            out.append(cell.side.at(spare // 2, spare % 2, noise))
    return out


def orders(candidates: list[Triple], last: int) -> Iterator[tuple[str, Tensor]]:
    """The candidates (all of one length) as batches of strings in four orders of their digits."""
    if not candidates:
        return
    import torch

    end = [EQUALS] if last == EQUALS else [EQUALS, last]
    for order in ("012", "102", "210"):
        rows = [[0, *(int(t) + 1 for t in order for _ in range(n[int(t)])), *end] for n in candidates]
        yield order, torch.tensor(rows)
    rows = []
    for n in candidates:
        pairs = [t for _ in range(min(n[0], n[1])) for t in (1, 2)]
        rest = [1] * (n[0] - min(n[0], n[1])) + [2] * (n[1] - min(n[0], n[1]))
        rows.append([0, *pairs, *rest, *([3] * n[2]), *end])
    yield "0101..2", torch.tensor(rows)


def margin_of(found: Mapping[str, object]) -> float | None:
    """The margin of a run that failed; None where a logit is not a finite number.

    >>> margin_of({"expected": "5", "logits": [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 1.5, 0.0]})
    -0.5
    """
    logits, right = found["logits"], TOKENS.index(str(found["expected"]))
    assert isinstance(logits, list)
    if None in logits:
        return None
    margin = float(margins_of(np.array(logits), right))
    return margin if margin <= 0 else None  # else rounding hides what exact arithmetic shows
