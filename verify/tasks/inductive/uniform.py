"""One layer whose scores are all exactly 0: each position sees the mean of all values before it, by prefix sums.

Where W_Q and its bias are 0, or W_K and its bias, every score is a sum of products with a factor 0, rotated or not: it
is 0 in real arithmetic and in every order of rounded arithmetic. Softmax of N zeros is N times e^0 = 1, divided by
their sum, which is N exactly for N <= 2^p in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from constructions.decoder_arrays import AttentionArrays, BlockArrays, DecoderArrays
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U, gamma, underflow
from verify.arithmetic.softmax import quotient_error, total_error
from verify.counting.tasks import Line
from verify.tasks.inductive.noisy import (
    Allowed,
    Lanes,
    Noisy,
    activate,
    box,
    carried,
    is_power,
    lanes_read,
    layer_norm,
    margins,
    plus,
    product,
    product_of_alike,
    some,
    sum_error,
)
from verify.tasks.inductive.runs import MarginBounds, Runs, padded

ARGUMENT = "one layer of equal weights: prefix sums of values, in balls"
ROWS = 1 << 18  # logits held at a time
RIVALS = 8  # classes that each row is compared with in full
SMALLEST = 2.0**-500  # of stored numbers that are not 0, below which the engine is quicker to say what is known
TABLE = 1 << 24  # numbers of tokens at all positions, beyond which shifts are run one by one


def applies(model: DecoderArrays) -> bool:
    """Whether all scores of the only layer are 0 whatever the input is."""
    return len(model.blocks) == 1 and has_zero_scores(model.blocks[0]) and not is_faint(model)


def is_faint(model: DecoderArrays) -> bool:
    """Whether a stored number is so small that what float64 loses of its products may matter."""
    return any(bool(((value != 0) & (np.abs(value) < SMALLEST)).any()) for value in model.stored.values())


def has_zero_scores(block: BlockArrays) -> bool:
    """Whether all scores of a block are 0 whatever the input is."""
    attention = block.attention
    pairs = ((attention.W_Q, attention.b_Q), (attention.W_K, attention.b_K))
    if not all(bool(np.isfinite(W).all()) and (b is None or bool(np.isfinite(b).all())) for W, b in pairs):
        return False
    return any(not bool(W.any()) and (b is None or not bool(b.any())) for W, b in pairs)


def without_idle(at: Allowed, model: DecoderArrays) -> DecoderArrays:
    """The decoder without neurons, and without numbers of values, that add nothing to the stream in real arithmetic.

    A neuron whose row of W_out is 0 adds 0 times a real number, where what it reads is finite; a number of a head's
    mean likewise, by its row of W_O, as a mean is of numbers alone.
    """
    return replace(model, blocks=tuple(map(_without_idle, model.blocks))) if at.is_real else model


def _without_idle(block: BlockArrays) -> BlockArrays:
    heads, mlp = block.attention, block.mlp
    bias = np.zeros(heads.W_V.shape[1]) if heads.b_V is None else heads.b_V
    kept = _heard(heads.W_V, bias, heads.W_O)
    b_V = None if heads.b_V is None else heads.b_V[kept]
    block = replace(block, attention=replace(heads, W_V=heads.W_V[:, kept], b_V=b_V, W_O=heads.W_O[kept]))
    if mlp is None:
        return block
    kept = _heard(mlp.W_in, mlp.b_in, mlp.W_out)
    neurons = replace(mlp, W_in=mlp.W_in[:, kept], b_in=mlp.b_in[kept], W_out=mlp.W_out[kept])
    return replace(block, mlp=neurons)


def _heard(W: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Which columns of W a row of `out` reads that is not 0, or are no numbers."""
    return some((out != 0).any(1) | ~np.isfinite(W).all(0) | ~np.isfinite(b))


def may_overflow(at: Allowed, attention: AttentionArrays, x: Noisy) -> bool:
    """Whether a query or key of these rows may overflow in the dtype, so that 0 times it is NaN and no score is 0.

    A rotation adds two numbers of its size at most, and scales may be applied before the product: hence the factor 4.
    """
    if at.stored is None:
        return False
    for W, b in ((attention.W_Q, attention.b_Q), (attention.W_K, attention.b_K)):
        rows = product(at, x, at.tensor(W))
        rows = rows if b is None else plus(at, rows, at.tensor(b))
        if not bool((4 * rows.size <= at.stored.largest).all()):
            return True
    return False


def stream(at: Allowed, model: DecoderArrays, tokens: np.ndarray, shift: int) -> Noisy:
    """The stream before the block, (lines, n, d), BOS included: W_E[token] with its position."""
    return embedded(at, model, with_bos(model, tokens), shift)


def with_bos(model: DecoderArrays, tokens: np.ndarray) -> np.ndarray:
    """The rows of W_E that strings (lines, n) take, BOS in front where the model has one."""
    return np.pad(tokens, ((0, 0), (1, 0)), constant_values=len(model.W_E) - 1) if model.has_bos else tokens


def embedded(at: Allowed, model: DecoderArrays, tokens: np.ndarray, shift: int | np.ndarray) -> Noisy:
    """W_E[token] with its position, at one shift or at one for each line: (lines, n, d).

    After the table's end, where no input has a position, there are zeros.
    """
    x = at.tensor(model.W_E)[tokens]
    if model.pe not in ("ape", "sine", "spe"):
        return x
    place = np.asarray(shift)[..., None] + np.arange(tokens.shape[-1])
    is_there, last = (place < len(model.table))[..., None], len(model.table) - 1
    rows = at.tensor(model.table).each(lambda part: np.where(is_there, part[np.minimum(place, last)], 0.0))
    rows = rows.each(lambda part: np.broadcast_to(part, (*x.mid.shape[:-1], part.shape[-1])))
    return beside(x, rows) if model.pe == "spe" else plus(at, x, rows)


def beside(x: Noisy, y: Noisy) -> Noisy:
    """Rows with the numbers of y after those of x."""
    return Noisy(np.concatenate([x.mid, y.mid], -1), np.concatenate([x.own, y.own], -1))


def values_of(at: Allowed, model: DecoderArrays, x: Noisy, layer: int = 0) -> Noisy | None:
    """What heads whose scores are 0 take from rows of the stream; None where a query or key may overflow."""
    block = model.blocks[layer]
    lanes = lanes_read(at, block.norm_1, block.attention.W_V)
    seen = layer_norm(at, x, block.norm_1, "heads", lanes)
    return None if may_overflow(at, block.attention, seen) else taken(at, block.attention, seen, lanes)


def taken(at: Allowed, attention: AttentionArrays, seen: Noisy, lanes: Lanes = slice(None)) -> Noisy:
    """What heads take from these numbers of normalised rows of the stream."""
    values = product(at, seen, at.tensor(attention.W_V[lanes]))
    return values if attention.b_V is None else plus(at, values, at.tensor(attention.b_V))


def weight(at: Allowed, N: np.ndarray) -> np.ndarray:
    """What the weights of N positions may be off by from 1/N, relatively and all together.

    Their total is a sum of N ones; where that has a wider format, it may be stored before the quotient is taken. Where
    1/N is below the normal numbers it may become 0, and nothing is known; no smaller N is infinite.
    """
    if at.is_real:
        return np.full_like(N, 4 * U)
    inner = at.accumulate or at.stored
    assert inner is not None and at.stored is not None
    total = total_error(RoundedArithmetic.of(inner), N, N, 0.0, True) + np.where(2.0**at.stored.p >= N, 0.0, at.u)
    off = quotient_error(total, at.u + 4 * U + (0.0 if inner is at.stored else 2 * inner.u))
    return np.where(at.stored.tiny * N <= 1, off, np.inf)


def means(at: Allowed, values: Noisy) -> Noisy:
    """What equal weights make of values (lines, n, inner): the mean of each prefix.

    The weights share the error of the first, and the others have a rounding of their own. A sum's error is that of its
    large terms, and at most twice its small ones: adding a number to another is off by no more than either of them.
    """
    n = values.mid.shape[-2]
    N = np.arange(1.0, n + 1)[:, None]
    size = values.size
    mid = values.mid.cumsum(-2) / N
    sizes = size.cumsum(-2) * ENLARGE / N
    lost = underflow(sizes + size.cumsum(-2) > 0, 8 + 4 * len(values.shared))
    own = values.own.cumsum(-2) / N * ENLARGE + gamma(n + 4) * sizes + lost
    shared = {q: G.cumsum(-2) / N for q, G in values.shared.items()}
    off = weight(at, N)
    if not at.is_real:
        is_small = size <= at.u * size.max(-2, keepdims=True)
        own = own + summed(at, size, is_small, values, n) / N * (1 + off) + at.lost_in_sums(n)
    noise = Noisy(mid, own, shared).noise
    own = at.checked(2 * sizes * (1 + off), (own + off * noise) * ENLARGE)
    return Noisy(mid, own, {**shared, "weights": mid * off})


def summed(at: Allowed, size: np.ndarray, is_small: np.ndarray, values: Noisy, n: int) -> np.ndarray:
    """What a dtype's sums of the first 1, 2, .. values times a weight are off by, in units of the weight."""
    large = np.where(is_small, 0.0, size).cumsum(-2) * ENLARGE
    small = np.where(is_small, size, 0.0).cumsum(-2) * ENLARGE * 2 * (1 + at.u) ** (n + 4)
    terms = (~is_small & (size > 0)).cumsum(-2)
    error = sum_error(at, max(int(terms.max()), 1))
    is_exact = (is_power(values.mid) & (values.noise == 0)) | is_small
    in_products = np.where(is_exact.cumprod(-2).astype(bool), 0.0, error[1])
    is_first = np.arange(n)[:, None] == 0
    others = np.where(is_first | is_small, 0.0, size).cumsum(-2) * ENLARGE
    rounding = in_products + error[np.maximum(terms - 1, 0)] * (1 + in_products)
    return np.asarray((rounding * (large + small) + 2 * at.u * others + small * (1 + 2 * at.u)) * ENLARGE)


def kept_apart(values: Noisy) -> Noisy:
    """The values with the divisors' errors of the first two positions shared, and all others each number's own."""
    name = "heads.s"
    found = values.boxed([q for q in values.shared if q != name])
    if name not in found.shared:
        return found
    G = found.shared[name]
    place = np.arange(G.shape[-2])[:, None]
    shared = {f"{name}{i}": np.where(place == i, G, 0.0) for i in range(2) if i < len(place)}
    shared = {q: part for q, part in shared.items() if bool(part.any())}
    return Noisy(found.mid, (found.own + np.where(place < 2, 0.0, np.abs(G))) * ENLARGE, shared)


def last(at: Allowed, model: DecoderArrays, x: Noisy, mixed: Noisy, layer: int = 0) -> Noisy:
    """What is unembedded, from rows of the stream and what their heads mixed, before W_O."""
    return layer_norm(at, after(at, model, x, mixed, layer), model.norm, "last", lanes_read(at, model.norm, model.W_U))


def after(at: Allowed, model: DecoderArrays, x: Noisy, mixed: Noisy, layer: int = 0) -> Noisy:
    """The stream after a block, from rows of the stream before it and what its heads mixed, before W_O."""
    block = model.blocks[layer]
    attention, mlp = block.attention, block.mlp
    x = written(at, x, mixed, attention.W_O, attention.b_O)
    if mlp is None:
        return x
    lanes = lanes_read(at, block.norm_2, mlp.W_in)
    seen = layer_norm(at, x, block.norm_2, f"mlp{layer}", lanes)
    hidden = product_of_alike(at, seen, at.tensor(mlp.W_in[lanes]), f"hidden{layer}")
    hidden = plus(at, hidden, at.tensor(mlp.b_in))
    hidden = activate(at, hidden, mlp.activation).without_zeros()
    return written(at, x, hidden, mlp.W_out, mlp.b_out)


def written(at: Allowed, x: Noisy, y: Noisy, W: np.ndarray, b: np.ndarray | None) -> Noisy:
    """x + (y W + b); in real arithmetic what W and b leave as it is has no error."""
    lanes: Lanes = some((W != 0).any(0) | (b is not None and b != 0)) if at.is_real else slice(None)
    out = product(at, y, at.tensor(W[:, lanes]))
    out = out if b is None else plus(at, out, at.tensor(b[lanes]))
    return x.with_lanes(lanes, plus(at, x.each(lambda a: a[..., lanes]), out))


class UniformRows(NamedTuple):
    """What a token has at a place of a string, BOS counted: stream (tokens, n, d) and values (tokens, n, inner)."""

    stream: Noisy
    values: Noisy


def bounds(runs: Runs, reading: Real | Rounded) -> Iterator[MarginBounds]:
    """Bounds on the margins at every shift.

    Inputs at a shift are prefixes of those at the first. Rotated zeros are zeros, so that rope's shifts are all as the
    first, as they are where all rows of a table are one; else one run bounds all shifts together, and each has a run
    of its own only where that leaves something open.
    """
    at = Allowed.of(reading)
    lines = runs.lines(0)
    if shifts_are_alike(runs.decoder):
        yield MarginBounds(runs.shifts, lines, *of_lines(at, runs, lines, 0), "balls")
        return
    known = at_any_shift(at, runs.decoder, max(len(line.tokens) for line in lines))
    if known is not None:
        low, high = of_lines(at, runs, lines, 0, known)
        if bool((low > 0).all()):
            yield MarginBounds(runs.shifts, lines, low, high, "balls")
            return
    for shift in runs.shifts:
        here = runs.lines(shift)
        yield MarginBounds(range(shift, shift + 1), here, *of_lines(at, runs, here, shift), "balls")


def shifts_are_alike(model: DecoderArrays) -> bool:
    """Whether the stream before the block is the same at every shift, and scores that are 0 stay so."""
    return model.pe in ("nope", "rope") or bool((model.table == model.table[:1]).all())


@np.errstate(all="ignore")
def at_any_shift(at: Allowed, model: DecoderArrays, length: int) -> UniformRows | None:
    """Streams and values that hold those of every shift at once; None where that is too much, or not bounded.

    A place of a string may have any row of the table of positions from its own on.
    """
    tokens, P = model.W_E.shape[0], len(model.table)
    if tokens * P * model.W_U.shape[0] > TABLE:
        return None
    x = embedded(at, model, np.broadcast_to(np.arange(tokens)[:, None], (tokens, P)), 0)
    values = values_of(at, model, x)
    if values is None:
        return None
    found = UniformRows(*(_from_each_on(part, length + int(model.has_bos)) for part in (x, values)))
    return found if all(bool(np.isfinite(part.size).all()) for part in found) else None


def largest_from(x: np.ndarray) -> np.ndarray:
    """The largest number from each place on, along the second axis."""
    return np.flip(np.maximum.accumulate(np.flip(x, 1), 1), 1)


def _from_each_on(x: Noisy, n: int) -> Noisy:
    """For each of n places a box that holds the rows (tokens, P, f) from it on: (tokens, n, f)."""
    noise = x.noise
    low, high = x.mid - noise, x.mid + noise
    bottom = -largest_from(-low)[:, :n]
    top = largest_from(high)[:, :n]
    is_exact = (bottom == top) & (largest_from(noise)[:, :n] == 0)
    found = box(bottom, top)
    return Noisy(np.where(is_exact, bottom, found.mid), np.where(is_exact, 0.0, found.own))


@np.errstate(all="ignore")
def of_lines(
    at: Allowed, runs: Runs, lines: list[Line], shift: int, known: UniformRows | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the margins of any strings at a shift, or with the `known` rows of tokens: (lines, positions)."""
    model = runs.decoder
    longest = max(len(line.tokens) for line in lines)
    tokens, answers = padded(runs.task, (line.tokens for line in lines), longest)
    low = np.full(tokens.shape, np.inf)
    high = low.copy()
    at_once = max(1, ROWS // (longest * model.W_U.shape[1]))
    bos = int(model.has_bos)
    for i in range(0, len(tokens), at_once):
        rows = slice(i, i + at_once)
        judged = answers[rows] >= 0
        if known is None:
            x = stream(at, model, tokens[rows], shift)
            values = values_of(at, model, x)
            if values is None:
                low[rows][judged], high[rows][judged] = -np.inf, np.inf
                continue
        else:
            at_each = (with_bos(model, tokens[rows]), np.arange(longest + bos))
            x, values = (part.each(lambda a: a[at_each]) for part in known)  # noqa: B023
        mixed = means(at, kept_apart(values))
        x_rows, mixed_rows = (part.each(lambda a: a[:, bos:][judged]) for part in (x, mixed))  # noqa: B023
        found = read(at, model, last(at, model, x_rows, mixed_rows), answers[rows][judged])
        low[rows][judged], high[rows][judged] = found
    return low, high


def read(at: Allowed, model: DecoderArrays, x: Noisy, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the margins of rows of the last stream, of which x has what W_U reads."""
    W_U, b_U = (
        at.tensor(model.W_U[lanes_read(at, model.norm, model.W_U)]),
        None if model.b_U is None else at.tensor(model.b_U),
    )
    at_once = max(1, ROWS // max(W_U.mid.shape[1], (RIVALS + 1) * len(W_U.mid)))
    found = [
        _of_rows(at, W_U, b_U, x[rows], right[rows])
        for rows in np.split(np.arange(len(right)), range(at_once, len(right), at_once))
    ]
    low, high = (np.concatenate(column) for column in zip(*found, strict=True))
    return low, high


def _of_rows(at: Allowed, W: Noisy, b: Noisy | None, x: Noisy, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Against the closest rivals with all errors kept apart, against others by one bound; against all where that
    leaves a row open."""
    if b is not None or W.own.any() or W.mid.shape[1] <= RIVALS + 1:
        return _against_all(at, W, b, x, right)
    far, rivals = beyond_closest(at, x, W.mid, right)
    columns = np.concatenate([right[:, None], rivals], 1)
    among = np.swapaxes(W.mid.T[columns], -2, -1)  # (rows, d, 1 + RIVALS), the right class first
    in_rows = x.each(lambda part: part[:, None])
    logits = product(at, in_rows, Noisy.exact(among), is_carried=False).each(lambda part: part[:, 0])
    more = (in_rows.own @ np.abs(among - among[..., :1]))[:, 0] * ENLARGE**2 + len(W.mid) * LEAST
    low, high = margins(logits, np.zeros_like(right), more)
    low = np.minimum(low, far)
    is_open = ~((low > 0) | (high <= 0))
    if bool(is_open.any()):
        low[is_open], high[is_open] = _against_all(at, W, b, x[is_open], right[is_open])
    return low, high


def _against_all(at: Allowed, W: Noisy, b: Noisy | None, x: Noisy, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if b is None:
        return margins(product(at, x, W, is_carried=False), right, carried(x, W.mid, right))
    return margins(plus(at, product(at, x, W), b), right)  # the addition rounds what x's own errors are in


def beyond_closest(at: Allowed, x: Noisy, W: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A lower bound on each row's margin to all but the RIVALS closest classes, and those: (rows,), (rows, RIVALS).

    Errors are one bound for each logit: at most c terms are not 0, so that c products and their sum are rounded, each
    relative to at most the sum of absolute values, as in `product`; in a dtype what a shared error makes of a logit is
    told before its sign is lost. NaN where that may overflow. Each sum loses d products to underflow, in the midpoints,
    in the errors and in each shared one; what a product with the errors' factors loses, W multiplies.
    """
    d, size, other = len(W), x.size, np.abs(W)
    c = int((size > 0).any(0).sum())
    few = sum_error(at, max(c, 1))
    rounding = float(few[1] + (few[max(c - 2, 0)] + few[1]) * (1 + few[1]) ** 2) * ENLARGE
    apart = x.noise if at.is_real else x.own
    terms = ((rounding + 2 * gamma(2 * d + 16)) * size + apart) * (1 + gamma(2 * d + 16)) * ENLARGE
    terms = terms + underflow(size > 0, 4)
    logits, error = x.mid @ W, terms @ other + (4 + len(x.shared)) * d * LEAST
    if not at.is_real:
        error += at.lost_in_sums(1) * (c + 2)
        for G in x.shared.values():
            error += np.abs(G @ W) * ENLARGE
    rows = np.arange(len(right))
    own = (logits - error)[rows, right]
    logits += error
    logits[rows, right] = -np.inf
    near = np.argpartition(np.where(np.isnan(logits), -np.inf, -logits), RIVALS)
    rival = logits[rows, near[:, RIVALS]]
    far = own - rival
    far = far - 4 * U * (np.abs(own) + np.abs(rival) + np.abs(far))
    return at.checked(2 * size @ other.max(1) * ENLARGE, far), near[:, :RIVALS]
