"""A circuit transformer run with every operation rounded to a format, on the right tokens of given inputs.

The tokens of a chain of thought are right up to the first wrong one. So one causal pass over the circuit's own values
finds that one, for all steps at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from constructions.circuits.between import Between, goes_on, watched
from constructions.errors import BadInput
from verify.arithmetic import softmax
from verify.arithmetic.balls import Ball, point, relu, stacked
from verify.arithmetic.evaluation import ELEMENTS, ORDERS, Evaluation, Tokens
from verify.arithmetic.formats import FORMATS, KERNEL_NAMES, Format
from verify.arithmetic.rounding import add, rounded
from verify.arithmetic.slack import Array
from verify.arithmetic.stored import numbers

if TYPE_CHECKING:
    from constructions.circuit_simulation import CircuitTransformer
    from verify.tasks.circuit.model import CircuitModel

MOST_SIMULATED = 128  # positions; every product of every pair of them is a number held
MOST_DRIVEN = 12  # positions in all orders; beyond only in those that take no search for the worst term
MOST_RUN = 10_000  # positions in torch: a table of all pairs is 800 MB in float64
MOST_PAIRS = 2**27  # pairs of positions in all inputs that are run: some seconds in torch
KERNEL_PAIRS = 2**24  # pairs of positions and inputs that torch holds at a time
UNDECIDED = -2  # in place of a token: balls do not say on which side of 1/2 it lies


@dataclass(frozen=True)
class WayOfRunning:
    """One way of running: by torch's kernels in the format's dtype, or with every operation rounded."""

    name: str
    evaluation: Evaluation | None


@dataclass(frozen=True)
class RealRun:
    """Real arithmetic, in balls: a token that they do not decide is UNDECIDED."""

    name: str = "real arithmetic"


def runs_of(fmt: Format | None, accumulate: Format | None, positions: int) -> Iterator[WayOfRunning | RealRun]:
    """torch where it has the format, then the orders, fused and not, where there are few positions."""
    if fmt is None:
        if positions <= MOST_SIMULATED:
            yield RealRun()
        return
    if fmt.name in KERNEL_NAMES and positions <= MOST_RUN:
        yield WayOfRunning(f"torch {fmt.name}", None)
    if positions <= MOST_SIMULATED:
        for order in ORDERS if positions <= MOST_DRIVEN else ORDERS[:3]:
            for fused in (False, True):
                evaluation = Evaluation(fmt, accumulate, order, fused, flush=fused)
                yield WayOfRunning(f"sums {order}, {'fused, flushed' if fused else 'not fused'}", evaluation)


def inputs_run(positions: int, run: WayOfRunning | RealRun | None = None) -> int:
    """How many inputs of so many positions are run within some seconds: fewer by the simulation than by torch."""
    slower = 1 if run is None or (isinstance(run, WayOfRunning) and run.evaluation is None) else 2**11
    return max(1, MOST_PAIRS // slower // (positions**2 + 1))


def stored_weights(model: CircuitModel, fmt: Format | None) -> dict[str, Array]:
    """The weights rounded once to the format in which tensors are stored, or as they are."""
    W = {name: numbers(W) for name, W in model.named_parameters()}
    return W if fmt is None else {name: rounded(w, Evaluation(fmt).stored) for name, w in W.items()}


def next_tokens(model: CircuitModel, fmt: Format | None, run: WayOfRunning | RealRun, tokens: Tokens) -> Tokens:
    """Computes the token of each position after the right ones before it: (n, N) -> (n, N). NaN gives the token 0, as
    it exceeds nothing.

    In real arithmetic a token may be UNDECIDED.

    >>> from constructions.circuits.circuit import Circuit, Gate
    >>> from constructions.circuit_simulation import build
    >>> from verify.arithmetic.formats import FORMATS
    >>> nand = Circuit("nand", ("x", "y"), (Gate("and", (0, 1), "c"), Gate("not", (2,), "z")), (("z", 3),))
    >>> fmt = FORMATS["e4m3"]
    >>> next_tokens(build(nand, s=3), fmt, WayOfRunning("", Evaluation(fmt)), np.array([[1, 1, 1]]))[:, 1:]
    array([[1, 0]])
    """
    return tokens_of(next_g(model, fmt, run, tokens))


def tokens_of(g: Ball) -> Tokens:
    """1 where g exceeds 1/2, else 0, NaN of a run included; UNDECIDED where a ball holds numbers of both kinds.

    A ball of real arithmetic always has a radius: NaN in its middle says only that float64 cannot hold its numbers.
    """
    is_single = g.rad == 0
    single, low, high = (g.mid > 0.5).astype(np.int64), g.lower, g.upper
    return np.where(is_single, single, np.where(low > 0.5, 1, np.where(high <= 0.5, 0, UNDECIDED)))


def next_g(
    model: CircuitModel, fmt: Format | None, run: WayOfRunning | RealRun, tokens: Tokens, between: Between = goes_on
) -> Ball:
    """The coordinate g that each position computes after the right tokens: (n, N), with radius zero where it is run.

    `between` is called before each block of inputs, and may end the run.
    """
    W, g = stored_weights(model, fmt), model.lanes.g
    step = max(1, ELEMENTS // (tokens.shape[1] ** 2 * 2 * model.lanes.k + 1))
    blocks = [tokens[i : i + step] for i in range(0, len(tokens), step)]
    if isinstance(run, RealRun):
        with np.errstate(all="ignore"):
            return stacked(*(real_g(W, row, g) for row in watched(tokens, between, 1)))
    if run.evaluation is None:
        assert fmt is not None
        values = _by_kernel(model, fmt, tokens, between)
    else:
        evaluation = run.evaluation
        with np.errstate(all="ignore"):
            values = np.concatenate([stream(W, block, evaluation)[..., g] for block in watched(blocks, between, 1)])
    return point(values)


def generate(model: CircuitModel, fmt: Format | None, accumulate: Format | None, right: Tokens) -> Tokens:
    """The chain of thought (n+T,) from the prompt of the right tokens: by torch, in float64 for real arithmetic.

    Formats that torch does not run are simulated, sums from left to right: each pass is right up to the first token
    that differs from those it was given.
    Raises: BadInput where that would take too long.
    """
    n = model.n
    if fmt is None or fmt.name in KERNEL_NAMES:
        import torch

        copy = in_kernel(model, FORMATS["float64"] if fmt is None else fmt)
        return copy.generate(torch.from_numpy(right[None, :n]))[0].numpy()
    if len(right) > MOST_SIMULATED:
        raise BadInput(f"--input: {len(right)} tokens are more than the {MOST_SIMULATED} that are run in {fmt.name}")
    tokens, run = right.copy(), WayOfRunning("", Evaluation(fmt, accumulate))
    while True:
        computed = next_tokens(model, fmt, run, np.maximum(tokens[None, :-1], 0))[0]
        wrong = np.flatnonzero(computed[n - 1 :] != tokens[n:])
        if not len(wrong):
            return tokens
        tokens[n + wrong[0]] = computed[n - 1 + wrong[0]]


def in_kernel(model: CircuitModel, fmt: Format) -> CircuitTransformer:
    """The module with its weights rounded once to the format's dtype."""
    import torch

    from constructions.circuit_simulation import CircuitTransformer
    from verify.arithmetic.formats import KERNELS

    copy = CircuitTransformer(n=model.n, T=model.T, s=model.s).to(KERNELS[fmt.name])
    copy.load_state_dict({name: torch.from_numpy(W).to(copy.E.dtype) for name, W in stored_weights(model, fmt).items()})
    return copy


def _by_kernel(model: CircuitModel, fmt: Format, tokens: Tokens, between: Between) -> Array:
    import torch

    copy = in_kernel(model, fmt)
    step = max(1, KERNEL_PAIRS // (tokens.shape[1] ** 2 + 1))
    blocks = watched((tokens[i : i + step] for i in range(0, len(tokens), step)), between, 1)
    with torch.no_grad():
        return np.concatenate([copy(torch.from_numpy(block)).double().numpy() for block in blocks])


def stream(W: Mapping[str, Array], tokens: Tokens, at: Evaluation) -> Array:
    """The residual stream after both layers, (n, L) tokens -> (n, L, d), by weights that are already rounded."""
    L = tokens.shape[1]
    x = at.tensor(at(add, W["E"][tokens], W["P"][:L]))
    is_later = np.triu(np.ones((L, L), bool), 1)
    for layer in range(2):
        W_Q, W_K, W_V, W_O, W_1, b_1, W_2, b_2 = (
            W[f"layers.{layer}.{name}"] for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2", "b_2")
        )
        scores = at.product(at.product(x, W_Q), np.swapaxes(at.product(x, W_K), -1, -2))
        attention = at.softmax(np.where(is_later, -np.inf, scores))
        x = at.tensor(at(add, x, at.product(at.product(attention, at.product(x, W_V)), W_O)))
        h = np.maximum(at.tensor(at(add, at.product(x, W_1), b_1)), 0)
        x = at.tensor(at(add, at.tensor(at(add, x, at.product(h, W_2))), b_2))
    return x


def real_g(W: Mapping[str, Array], tokens: Tokens, g: int) -> Ball:
    """Balls (N,) around what real arithmetic computes after the right tokens (N,); never a single number."""
    L = len(tokens)
    is_earlier = np.tril(np.ones((L, L), bool))
    x = Ball.exact(W["E"][tokens]) + Ball.exact(W["P"][:L])
    for layer in range(2):
        W_Q, W_K, W_V, W_O, W_1, b_1, W_2, b_2 = (
            Ball.exact(W[f"layers.{layer}.{name}"]) for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2", "b_2")
        )
        scores = (x @ W_Q) @ (x @ W_K).T
        e = softmax.weights(scores, is_earlier)
        mixture = (e @ (x @ W_V)) / (e @ Ball.exact(np.ones((L, 1))))
        x = x + mixture @ W_O
        x = x + relu(x @ W_1 + b_1) @ W_2 + b_2
    found = x[:, g]
    return Ball(found.mid, np.where(np.isnan(found.mid), np.inf, np.maximum(found.rad, 5e-324)))
