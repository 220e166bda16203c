"""The runs of `computed` many tokens at once, as machine code where llvmlite is installed.

The code only moves a state along tokens whose answers are right and whose numbers are finite: it stops before any other
one, which is then computed and judged as without it. Each operation is that of `Computed`, by the bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.machine_code import engine_of, is_compiled
from verify.arithmetic.slack import Array
from verify.tasks.recurrent.network import BallVector, Network, State, nonzeros, step, vectors

if TYPE_CHECKING:
    from llvmlite import ir

    from verify.tasks.recurrent.proof import OrbitQuestion

FROM = 64  # tokens, before machine code is made
AT_A_TIME = 1 << 16  # tokens between two looks at the clock
MOST_WEIGHTS, MOST_TURN = 1000, 1 << 16  # what takes long to be made into code
DROPPED = {"bfloat16": 45, "float16": 42}  # bits of a float64 number that a number of the format lacks
READ = ("float32", "float64", *DROPPED)


class StoredRows(Protocol):
    """What a run computes with: the rows of a network's matrices, and its known vectors in the format."""

    def rows_of(self, W: Array, b: Array) -> list[tuple[list[tuple[int, float]], float]]: ...

    def known(self, x: BallVector) -> list[float]: ...


@dataclass(frozen=True)
class Walked:
    """The state after t tokens, all right, and the one saved after `look`; whether it is the same at the same place."""

    state: State[Sequence[float]]
    t: int
    saved: State[Sequence[float]]
    look: int
    is_again: bool = False


class CompiledWalk:
    """The run `numbers` of a network along the last token of a line, for ever."""

    def __init__(self, net: Network, line: OrbitQuestion, numbers: StoredRows, fmt: Format, *, keeps: bool) -> None:
        self._net, self._turn, self._line = net, line.period, line
        self._engine = engine_of(str(_Loop(net, line, numbers, fmt, keeps=keeps).module))
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(whole, pointer, pointer, pointer, whole, whole, whole)
        self._walk = kind(self._engine.get_function_address("walk"))
        self._due: Array | None = None

    @classmethod
    def of(
        cls, net: Network, line: OrbitQuestion, numbers: StoredRows, fmt: Format, *, keeps: bool
    ) -> CompiledWalk | None:
        """None where no machine code can be made, or none that is worth it."""
        weights = sum(int(nonzeros(W, b).sum()) for layer in net.layers
                      for W, b in ((layer.W_x, layer.b_x), (layer.W_h, layer.b_h)))  # fmt: skip
        is_small = weights + int(nonzeros(net.V, net.b).sum()) <= MOST_WEIGHTS and line.period <= MOST_TURN
        has_functions = net.kind in ("gru", "lstm") or net.activation == "tanh"
        is_read = fmt.name in READ and not (has_functions and fmt is FORMATS["float64"]) and net.W is None
        return cls(net, line, numbers, fmt, keeps=keeps) if is_small and is_read and is_compiled() else None

    def along(self, now: Walked, last: int | None) -> Walked:
        """From a state to that after `last` tokens at most, AT_A_TIME more, or the one whose next answer is left open.

        Answers repeat from there on. A state is saved after each power of two of tokens.
        """
        end = now.t + AT_A_TIME if last is None else min(now.t + AT_A_TIME, last)
        is_open = False
        while not is_open and not now.is_again and now.t < end:
            most = min(2 * now.look, end)
            state, tokens = self._moved(now, most - now.t)
            t = now.t + abs(tokens)
            is_open = t < most
            now = Walked(state, t, *((state, t) if t >= 2 * now.look else (now.saved, now.look)), is_again=tokens < 0)
        return now

    def _moved(self, now: Walked, tokens: int) -> tuple[State[Sequence[float]], int]:
        """The state after up to so many tokens, and how many: less than 0 where it is the saved one."""
        k = self._turn
        if self._due is None:
            first = now.t + 1
            self._due = np.array([self._line.expected(first + (r - first) % k) for r in range(k)], dtype=np.int64)
        own, old = (np.array(x, dtype=float).ravel() for x in (now.state, now.saved))
        done = self._walk(own.ctypes.data, old.ctypes.data, self._due.ctypes.data, now.t % k, now.look % k, tokens)
        return [x.tolist() for x in vectors(self._net, own)], done


class _Loop:
    """walk(state, saved, due, place of the state in a turn, that of the saved one, tokens): how many were done,
    less than 0 where the saved state has come again.
    """

    def __init__(self, net: Network, line: OrbitQuestion, numbers: StoredRows, fmt: Format, *, keeps: bool) -> None:
        from llvmlite import ir

        self.ir, self.module, self.number, self.whole = ir, ir.Module("walk"), ir.DoubleType(), ir.IntType(64)
        pointers = [self.number.as_pointer()] * 2 + [self.whole.as_pointer()]
        function = ir.Function(self.module, ir.FunctionType(self.whole, pointers + [self.whole] * 3), "walk")
        state, saved, due, place, look, tokens = function.args
        start, body, judge, after, again, wrong, last = (
            function.append_basic_block(name) for name in ("start", "body", "judge", "after", "again", "wrong", "last")
        )
        self.do = ir.IRBuilder(start)
        self.on = _Emitted(self, numbers, fmt, keeps=keeps)
        cells = [self.do.gep(state, [self.whole(i)]) for i in range(net.size)]
        first = [self.do.load(cell) for cell in cells]
        old = [self.do.load(self.do.gep(saved, [self.whole(i)])) for i in range(net.size)]
        self.do.branch(body)

        self.do.position_at_end(body)
        i, r = self.do.phi(self.whole), self.do.phi(self.whole)
        own = [self.do.phi(self.number) for _ in cells]
        self.do.cbranch(self.do.icmp_signed("<", i, tokens), judge, wrong)

        self.do.position_at_end(judge)
        H, one = net.hidden, self.whole(1)
        parts = [own[k : k + H] for k in range(0, net.size, H)]
        new: list[ir.Value] = [x for part in step(net, parts, line.token, self.on) for x in part]
        next_r = self.do.add(r, one)
        next_r = self.do.select(self.do.icmp_signed("==", next_r, self.whole(line.period)), self.whole(0), next_r)
        logits = self.on.linear(net.V, new[net.read], net.b)
        right = self.do.load(self.do.gep(due, [next_r]))
        is_well = self.all([self.is_right(logits, right), *(self.is_finite(x) for x in new)])
        self.do.cbranch(is_well, after, wrong)

        self.do.position_at_end(after)
        next_i = self.do.add(i, one)
        minus = self.do.neg(next_i)
        same = [self.do.fcmp_ordered("==", x, y) for x, y in zip(new, old, strict=True)]
        is_again = self.all([self.do.icmp_signed("==", next_r, look), *same])
        self.do.cbranch(is_again, again, body)
        for phi, begin, later in ((i, self.whole(0), next_i), (r, place, next_r), *zip(own, first, new, strict=True)):
            phi.add_incoming(begin, start)
            phi.add_incoming(later, after)

        self.do.position_at_end(again)
        self.do.branch(last)
        self.do.position_at_end(wrong)
        self.do.branch(last)
        self.do.position_at_end(last)
        done = self.joined(self.whole, (minus, again), (i, wrong))
        ends = [self.joined(self.number, (x, again), (y, wrong)) for x, y in zip(new, own, strict=True)]
        for cell, x in zip(cells, ends, strict=True):
            self.do.store(x, cell)
        self.do.ret(done)

    def all(self, conditions: Sequence[ir.Value]) -> ir.Value:
        found = conditions[0]
        for condition in conditions[1:]:
            found = self.do.and_(found, condition)
        return found

    def is_right(self, logits: Sequence[ir.Value], right: ir.Value) -> ir.Value:
        """Whether the logit of a class is above all others; not where one is NaN."""
        own, places = logits[0], [self.whole(j) for j in range(len(logits))]
        for j, logit in zip(places[1:], logits[1:], strict=True):
            own = self.do.select(self.do.icmp_signed("==", right, j), logit, own)
        return self.all([self.do.or_(self.do.icmp_signed("==", right, j), self.do.fcmp_ordered(">", own, x))
                         for j, x in zip(places, logits, strict=True)])  # fmt: skip

    def is_finite(self, x: ir.Value) -> ir.Value:
        return self.do.fcmp_ordered("==", self.do.fsub(x, x), self.number(0.0))

    def joined(self, kind: ir.Type, *values: tuple[ir.Value, ir.Block]) -> ir.Value:
        found = self.do.phi(kind)
        for value, block in values:
            found.add_incoming(value, block)
        return found


class _Emitted:
    """The operations of `Computed` on lists of values of the code."""

    def __init__(self, loop: _Loop, numbers: StoredRows, fmt: Format, *, keeps: bool) -> None:
        self._loop, self._do, self._numbers, self._fmt, self._keeps = loop, loop.do, numbers, fmt, keeps
        self._functions: dict[str, ir.Function] = {}

    def _constant(self, x: float) -> ir.Value:
        return self._loop.number(x)

    def _to(self, x: ir.Value) -> ir.Value:
        return x if self._keeps else self._factor(x)

    def _factor(self, x: ir.Value) -> ir.Value:
        """Rounded to the format, ties to even."""
        if self._fmt is FORMATS["float64"]:
            return x
        if self._fmt is FORMATS["float32"]:
            return self._do.fpext(self._do.fptrunc(x, self._loop.ir.FloatType()), self._loop.number)
        return self._shorter(x)

    def _shorter(self, x: ir.Value) -> ir.Value:
        """The same where the last bits are cut: normal numbers by their bits, smaller ones beside a large number."""
        do, whole, dropped = self._do, self._loop.whole, DROPPED[self._fmt.name]
        bits = do.bitcast(x, whole)
        odd = do.and_(do.lshr(bits, whole(dropped)), whole(1))
        bits = do.add(bits, do.add(odd, whole((1 << (dropped - 1)) - 1)))
        normal = do.bitcast(do.and_(bits, whole(-(1 << dropped))), self._loop.number)
        normal = do.select(self._is_above(normal, self._fmt.largest), do.fmul(normal, self._constant(np.inf)), normal)
        beside = self._constant(1.5 * 2.0 ** (52 + self._fmt.smallest_exponent - (self._fmt.p - 1)))
        small = do.fsub(do.fadd(x, beside), beside)
        is_small = do.fcmp_ordered("<", self._size(x), self._constant(2.0**self._fmt.smallest_exponent))
        return do.select(is_small, small, normal)

    def _size(self, x: ir.Value) -> ir.Value:
        return self._call("llvm.fabs.f64", x)

    def _is_above(self, x: ir.Value, least: float) -> ir.Value:
        return self._do.fcmp_ordered(">", self._size(x), self._constant(least))

    def _call(self, name: str, x: ir.Value) -> ir.Value:
        if name not in self._functions:
            kind = self._loop.ir.FunctionType(self._loop.number, [self._loop.number])
            self._functions[name] = self._loop.ir.Function(self._loop.module, kind, name)
        return self._do.call(self._functions[name], [x])

    def linear(self, W: Array, x: Sequence[ir.Value] | Array, b: Array, terms: Array | None = None) -> list[ir.Value]:
        """Weights 0 are left out: all factors are finite."""
        vector = [self._constant(y) for y in x.tolist()] if isinstance(x, np.ndarray) else x
        if self._keeps:
            vector = [self._factor(y) for y in vector]
        found: list[ir.Value] = []
        for row, constant in self._numbers.rows_of(W, b):
            total = self._constant(0.0)
            for i, w in row:
                total = self._to(self._do.fadd(total, self._to(self._do.fmul(self._constant(w), vector[i]))))
            found.append(self._to(self._do.fadd(total, self._constant(constant))))
        return found

    def known(self, x: BallVector) -> list[ir.Value]:
        return [self._constant(y) for y in self._numbers.known(x)]

    def whole(self, x: Sequence[ir.Value], y: Sequence[ir.Value]) -> list[ir.Value]:
        return self.add(x, y)

    def cut(self, x: Sequence[ir.Value], start: int, stop: int) -> Sequence[ir.Value]:
        return x[start:stop]

    def add(self, x: Sequence[ir.Value], y: Sequence[ir.Value]) -> list[ir.Value]:
        return [self._to(self._do.fadd(a, b)) for a, b in zip(x, y, strict=True)]

    def multiply(self, x: Sequence[ir.Value], y: Sequence[ir.Value]) -> list[ir.Value]:
        return [self._to(self._do.fmul(a, b)) for a, b in zip(x, y, strict=True)]

    def blend(self, z: Sequence[ir.Value], n: Sequence[ir.Value], h: Sequence[ir.Value]) -> list[ir.Value]:
        rest = [self._to(self._do.fsub(self._constant(1.0), a)) for a in z]
        return self.add(self.multiply(rest, n), self.multiply(z, h))

    def tanh(self, x: Sequence[ir.Value]) -> list[ir.Value]:
        return [self._to(self._call("tanh", a)) for a in x]

    def sigmoid(self, x: Sequence[ir.Value]) -> list[ir.Value]:
        return [self._to(self._logistic(a)) for a in x]

    def _logistic(self, x: ir.Value) -> ir.Value:
        one, do = self._constant(1.0), self._do
        e = self._call("exp", do.fneg(self._size(x)))
        return do.fdiv(do.select(do.fcmp_ordered(">=", x, self._constant(0.0)), one, e), do.fadd(one, e))

    def relu(self, x: Sequence[ir.Value]) -> list[ir.Value]:
        """NaN as it is."""
        zero = self._constant(0.0)
        return [self._do.select(self._do.fcmp_unordered(">", a, zero), a, zero) for a in x]
