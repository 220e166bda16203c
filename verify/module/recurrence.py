"""A recurrent cell, cell(state, token) -> (state, logits), as a graph of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from flint import arb
from numpy.typing import NDArray
from torch import Tensor, nn

from constructions.errors import BadInput
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.readings import Real, Rounded
from verify.arithmetic.rounding import rounded
from verify.arithmetic.slack import ENLARGE_LONG, Array
from verify.engine import exact
from verify.engine.balls import Arithmetic, Ball, Step
from verify.engine.capture import Graph, capture
from verify.engine.mean_value import by_balls, followed
from verify.engine.run import ENTRIES_AT_ONCE, enclosed_weights, evaluate
from verify.frame.judged import check_read
from verify.module.automaton import Automaton

State = tuple[Tensor, ...]
Precise = NDArray[np.object_]
HOW = "forward(state, token) must return (state, logits)"
REAL = Real()


@dataclass(frozen=True, init=False)
class Recurrence:
    """What is said of a recurrent cell: its first state, its tokens, and the right class after every token.

    The cell is called as cell(state, token) and returns (state, logits). `start` is a tensor or a tuple of tensors,
    and `token` a tensor (1,). `vocabulary` is K for the tokens 0 to K - 1, or a list of tokens; `expected` reads a
    string token by token, and an answer None is not judged.
    Raises: BadInput for what is none of these.

    >>> from verify.module import Automaton
    >>> odd = Automaton(0, lambda state, token: (state + token) % 2, lambda state: state)
    >>> Recurrence(torch.zeros(1, 3), odd, vocabulary=2).vocabulary
    (0, 1)
    """

    start: State
    is_one: bool
    expected: Automaton
    vocabulary: tuple[int, ...]

    def __init__(self, start: object, expected: Automaton, vocabulary: int | Iterable[int] = 1) -> None:
        if not isinstance(expected, Automaton) or expected.backwards:
            raise BadInput("expected: must be an Automaton(start, step, answer) that reads forwards")
        is_one = isinstance(start, Tensor)
        state = (start,) if is_one else tuple(start) if isinstance(start, list | tuple) else ()
        if not state or not all(isinstance(part, Tensor) and part.ndim and part.numel() for part in state):
            raise BadInput("start: must be a tensor with axes and entries, or a tuple of such tensors")
        dtypes = {part.dtype for part in state}
        if len(dtypes) > 1 or not state[0].is_floating_point():
            raise BadInput(f"start: has {', '.join(sorted(map(str, dtypes)))}; must be floats of one dtype")
        if not all(bool(part.isfinite().all()) for part in state):
            raise BadInput("start: holds NaN or infinity; a state is finite")
        for name, value in (("start", tuple(part.detach().clone() for part in state)), ("is_one", is_one)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "expected", expected)
        object.__setattr__(self, "vocabulary", _tokens(vocabulary))

    def given(self, state: Sequence[Tensor]) -> Tensor | State:
        """A state as the cell is called with it: copies, which it may overwrite."""
        copies = tuple(part.clone() for part in state)
        return copies[0] if self.is_one else copies

    def due(self, state: object, classes: int) -> int | None:
        """The right class in a state of the automaton, None where none is judged.

        Raises: BadInput for a label that is no class.
        """
        label = self.expected.answer(state)
        if label is None:
            return None
        if isinstance(label, float) or not 0 <= int(label) < classes:
            raise BadInput(f"expected: the answer {label!r} in the state {state!r} is none of the {classes} classes")
        return int(label)


def _tokens(vocabulary: object) -> tuple[int, ...]:
    if isinstance(vocabulary, int) and not isinstance(vocabulary, bool):
        vocabulary = range(max(vocabulary, 0))
    found = list(vocabulary) if isinstance(vocabulary, Iterable) else []
    are_tokens = all(isinstance(t, int) and not isinstance(t, bool) and t >= 0 for t in found)
    if not found or not are_tokens or len(set(found)) < len(found):
        raise BadInput(f"vocabulary={vocabulary!r}: must be a number of tokens, or a list of different ones")
    return tuple(found)


class Stepped(nn.Module):
    """A cell whose state is stored: tokens (1, 1) -> all numbers of the next state, and then the logits, (1, size).

    The state is copied before the cell sees it. It is a parameter, as a buffer of one number may be read while a module
    is traced.
    """

    def __init__(self, cell: nn.Module, task: Recurrence) -> None:
        super().__init__()
        self.cell, self.task, self.training = cell, task, False  # the cell's own mode is looked at
        for i, part in enumerate(task.start):
            self.register_parameter(f"state_{i}", nn.Parameter(part, requires_grad=False))

    def forward(self, tokens: Tensor) -> Tensor:
        state = [self.get_parameter(f"state_{i}") for i in range(len(self.task.start))]
        after, logits = stepped(self.cell, self.task, state, tokens[0])
        return torch.cat([part.reshape(-1) for part in (*after, logits)])[None]


def stepped(cell: nn.Module, task: Recurrence, state: Sequence[Tensor], token: Tensor) -> tuple[State, Tensor]:
    """One call of the cell: the next state and the logits, looked at before they are used.

    Raises: BadInput where it returns anything else than a state of the same shapes and dtype, and logits.
    """
    found = cell(task.given(state), token)
    if not isinstance(found, tuple) or len(found) != 2:
        raise BadInput(f"module: returns a {type(found).__name__}; {HOW}")
    after = (found[0],) if isinstance(found[0], Tensor) else tuple(found[0])
    if isinstance(found[0], Tensor) != task.is_one or [_shape(x) for x in after] != [_shape(x) for x in task.start]:
        was, is_now = ([_shape(x) for x in parts] for parts in (task.start, after))
        raise BadInput(f"module: the state after a token has {is_now}, the first one {was}; {HOW} of the same shapes")
    logits = found[1]
    if (
        not isinstance(logits, Tensor)
        or not logits.is_floating_point()
        or logits.numel() != max(logits.shape, default=0)
    ):
        raise BadInput(f"module: the logits are {_shape(logits)}; must be floats of shape (classes,) or (1, classes)")
    if logits.numel() < 2:
        raise BadInput("module: there is one logit, which nothing rivals; two classes or more are judged")
    return after, logits.reshape(-1)


def _shape(x: object) -> tuple[tuple[int, ...], str] | str:
    return (tuple(x.shape), str(x.dtype)) if isinstance(x, Tensor) else type(x).__name__


class StepGraph:
    """A cell captured: `size` numbers of its state, then `classes` logits, enclosed from a box of states or a point.

    In a format boxes hold what every order of evaluation computes, and a point is followed by one evaluation: every
    result kept exactly, and factors of matrix products rounded.
    Raises: BadInput for a cell that fails on a token, or that no rule covers.
    """

    def __init__(self, cell: nn.Module, task: Recurrence, reading: Real | Rounded = REAL) -> None:
        self.cell, self.task, self.whole = cell, task, Stepped(cell, task)
        self.at, self.every = self._arithmetic(reading)
        self.size = sum(part.numel() for part in task.start)
        for token in task.vocabulary:
            self._check_run(token)
        self.graph: Graph = capture(self.whole, 1)
        stored = {self.graph.names[name]: value for name, value in self.graph.stored.items()}
        check_read(self.whole, stored)
        self.classes = int(self.graph.output.shape[-1]) - self.size
        self.parts: dict[str, tuple[slice, tuple[int, ...]]] = {}
        start, by_name = 0, {name: node for node, name in self.graph.names.items()}
        for i, part in enumerate(task.start):
            where = slice(start, start := start + part.numel())
            if f"state_{i}" in by_name:
                self.parts[by_name[f"state_{i}"]] = where, tuple(part.shape)

    def _arithmetic(self, reading: Real | Rounded) -> tuple[RoundedArithmetic | None, Arithmetic]:
        """How points and boxes are computed, where the first state is made of numbers of the format."""
        if isinstance(reading, Real):
            return None, Arithmetic()
        at = RoundedArithmetic.of(reading.format, reading.accumulate)
        fmt = at.stored
        for x in self.first.tolist():
            if x and not (fmt.tiny <= abs(x) and float(rounded(np.array(x), fmt)) == x):
                raise BadInput(f"start: holds {x!r}, which is no normal number of {fmt.name}. Round it, or take real")
        return at, Arithmetic(reading.format, reading.accumulate)

    def read_in(self, reading: Real | Rounded, task: Recurrence | None = None) -> StepGraph:
        """The same step in another reading, and from the same state on some of its tokens, without capturing it again.

        Raises: BadInput where the first state has a number that is none of the format.
        """
        other = copy(self)
        for name in ("_numbers", "_exactly", "_as_factor"):
            other.__dict__.pop(name, None)
        other.at, other.every = self._arithmetic(reading)
        other.task = self.task if task is None else task
        return other

    def _check_run(self, token: int) -> None:
        try:
            self.run(self.task.start, token)
        except BadInput:
            raise
        except Exception as error:  # whatever the user's code raises
            reason = (str(error).splitlines() or [""])[0]
            raise BadInput(f"module: fails on the token {token}: {type(error).__name__}: {reason}. {HOW}.") from None

    @cached_property
    def first(self) -> Array:
        """All numbers of the first state."""
        return flat(self.task.start)

    def run(self, state: Sequence[Tensor], token: int) -> tuple[State, Tensor]:
        """One step as torch runs the cell."""
        with torch.no_grad():
            return stepped(self.cell, self.task, state, torch.tensor([token]))

    @property
    def at_once(self) -> int:
        """How many states are stepped in one batch."""
        return max(1, ENTRIES_AT_ONCE // (16 * max(self.graph.widest, self.size)))

    def _box(self, mid: Tensor, rad: Tensor) -> dict[str, Ball]:
        return {
            name: Ball(mid[where].reshape(shape), rad[where].reshape(shape))
            for name, (where, shape) in self.parts.items()
        }

    def enclosed(
        self, mid: Array, rad: Array, tokens: Sequence[int], at: Arithmetic | None = None
    ) -> tuple[Array, Array]:
        """Midpoints and radii (N, size + classes) of what follows on boxes of states (N, size)."""
        at = at or self.every
        stored = enclosed_weights(self.graph, at)

        def one(mid: Tensor, rad: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
            out = evaluate(self.graph, {**stored, **self._box(mid, rad)}, token, at)
            return out.mid[0], out.radius.expand(out.mid.shape)[0]

        mids, rads = self._batches(one, mid, rad, tokens)
        return mids, rads

    def slopes(self, mid: Array, rad: Array, tokens: Sequence[int], seeds: Array) -> tuple[Array, Array, Array, Array]:
        """The mean value form of linear functions of the output: the output y at the midpoint c, G, its radius, and e.

        For every x of the box, seed y(x) lies within e of seed y + G' (x - c), G' a matrix in the ball of G.
        Shapes: boxes (N, size), seeds (N, R, size + classes) -> y (N, size + classes), G (N, R, size), e (N, R).
        """
        stored = enclosed_weights(self.graph, Arithmetic())

        def one(mid: Tensor, rad: Tensor, token: Tensor, seeds: Tensor) -> tuple[Tensor, ...]:
            tape: list[Step] = []
            box = self._box(mid, rad)
            out = evaluate(self.graph, {**stored, **box}, token, Arithmetic(has_norms=True, tape=tape))

            def row(seed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                local, found = followed(tape, out, seed.reshape(out.mid.shape))
                by_state = {name: found.pop(id(ball), (ball, Ball(0 * ball.mid)))[1] for name, ball in box.items()}
                error = (local + by_balls(found)) * ENLARGE_LONG  # of what no number of the state brings about
                G, radius = torch.zeros_like(mid), torch.zeros_like(mid)
                for name, (where, _) in self.parts.items():
                    G = torch.slice_scatter(G, by_state[name].mid.reshape(-1), 0, where.start, where.stop)
                    radius = torch.slice_scatter(radius, by_state[name].radius.reshape(-1), 0, where.start, where.stop)
                return G, radius, error

            return (out.mid[0], *torch.vmap(row)(seeds))

        y, G, radius, error = self._batches(one, mid, rad, tokens, seeds)
        return y, G, radius, error

    def _batches(
        self, one: Callable[..., tuple[Tensor, ...]], mid: Array, rad: Array, tokens: Sequence[int], *more: Array
    ) -> list[Array]:
        given = [torch.from_numpy(np.ascontiguousarray(x)) for x in (mid, rad)]
        given += [torch.tensor(tokens, dtype=torch.long)[:, None], *map(torch.from_numpy, more)]
        at_once = max(1, self.at_once // (1 if not more else more[0].shape[1]))
        many = torch.vmap(one)
        with torch.no_grad():
            found = [many(*part) for part in zip(*(torch.split(x, at_once) for x in given), strict=True)]
        return [torch.cat(column).numpy() for column in zip(*found, strict=True)]

    @property
    def has_digits(self) -> bool:
        """Whether a step can be followed in balls of many bits; in a format by the one evaluation.

        tf32 has other factors than numbers, and a weight beyond the largest number is none.
        """
        if not exact.is_covered(self.graph):
            return False
        if self.at is None:
            return True
        is_plain = self.at.operand is self.at.stored and exact.are_factors_known(self.graph)
        return is_plain and all(bool(x.isfinite().all()) for x in self._numbers.values() if x.is_floating_point())

    @cached_property
    def _numbers(self) -> dict[str, Tensor]:
        """The stored tensors, rounded to the format."""
        if self.at is None:
            return dict(self.graph.stored)
        fmt = self.at.stored
        return {
            name: torch.from_numpy(rounded(x.detach().double().numpy(), fmt)) if x.is_floating_point() else x
            for name, x in self.graph.stored.items()
        }

    @cached_property
    def _exactly(self) -> dict[str, object]:
        return {name: exact.balls(value) for name, value in self._numbers.items()}

    @cached_property
    def _as_factor(self) -> Callable[[Precise], Precise] | None:
        """How a factor of a matrix product is read; stored numbers are those of the format."""
        if self.at is None:
            return None
        fmt, stored = self.at.stored, {id(value) for value in self._exactly.values()}
        return lambda x: x if id(x) in stored else exact.nearest(x, fmt)

    def precise_start(self) -> Precise:
        """The first state in balls."""
        return exact.filled([arb(x) for x in self.first.tolist()], (self.size,))

    def precise(self, state: Precise, token: int) -> tuple[Precise, list[exact.Entry]]:
        """One step in balls of as many bits as the context has: the next state and the logits.

        Raises: Undecidable where a comparison in the cell stays open, or to which number a factor is rounded.
        """
        parts = {name: state[where].reshape(shape) for name, (where, shape) in self.parts.items()}
        stored: dict[str, Any] = {**self._exactly, **parts}
        graph = replace(self.graph, stored=stored)
        out = exact.evaluate(graph, torch.tensor([token]), as_factor=self._as_factor)[0]
        return out[: self.size], list(out[self.size :])


def flat(state: Sequence[Tensor]) -> Array:
    """All numbers of a state in one row."""
    return torch.cat([part.detach().double().reshape(-1) for part in state]).numpy()
