"""What every function's tables are least and greatest at, as machine code where llvmlite is installed.

`verify.reduction.quotients` says what is computed, does so with torch where llvmlite is missing, and bounds what either
rounds away: products may be fused or not, and sums are in any order. Eight functions are the lanes of a vector, so that
the tables of a cell and of these never leave a core's cache. The least of some numbers passes over those that are none;
so what is left of a cell's tables is multiplied by 0 and added, which is not 0 where one of them is no finite number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from verify.arithmetic.machine_code import engine_of

if TYPE_CHECKING:
    from llvmlite import ir

LANES = 8
NEARLY = 2.0**-40  # of a function's largest quotient: by how much a least one is taken too low


class Chords(NamedTuple):
    """The tables T = u_h . x - mu w of each head and function, and the sum over the heads of a T, by listed token.

    `least` and `most` are the sums over the places of T's ends, `least_size` and `most_size` those of their absolute
    values, `total` the least sum of the sum over the heads. Shapes: (heads, cells, functions), but `combined` (cells,
    functions, entries) and `total` (cells, functions).
    """

    mu: Tensor
    a: Tensor
    least: Tensor
    least_size: Tensor
    most: Tensor
    most_size: Tensor
    combined: Tensor
    total: Tensor


class Bounding(NamedTuple):
    """Cells and functions: `rows` (cells, entries, numbers) as `Tables.rows`, `few` and `many` (cells, heads).

    `u` (cells, functions, atoms), `mu` (heads, cells, functions), `slots` the first entry of each place, and how many
    entries there are; `parts` the same of heads and atoms.
    """

    rows: Tensor
    few: Tensor
    many: Tensor
    u: Tensor
    mu: Tensor
    slots: list[int]
    parts: list[int]


def chords(asked: Bounding, turns: int) -> Chords:
    """The tables with mu near each head's least quotient, looked for in so many turns, or with the given mu by none."""
    functions, heads = asked.u.shape[1], len(asked.parts) - 1
    cells, entries, numbers = asked.rows.shape
    width = -(-functions // LANES) * LANES
    u = asked.u.new_zeros(cells, asked.u.shape[2], width)
    u[..., :functions] = asked.u.transpose(1, 2)
    by_head = [u.new_zeros(heads, cells, width) for _ in range(6)]
    by_head[0][..., :functions] = asked.mu
    combined, total = u.new_empty(cells, entries, width), u.new_empty(cells, width)
    room = u.new_empty(2, entries, LANES)
    slots, parts = torch.tensor(asked.slots), torch.tensor(asked.parts)
    few, many, rows = asked.few.contiguous(), asked.many.contiguous(), asked.rows.contiguous()
    arrays = rows, few, many, u, *by_head, combined, total, room, slots, parts
    sizes = cells, entries, numbers, width, heads, len(asked.slots) - 1, u.shape[1], turns
    _function()(*(array.data_ptr() for array in arrays), *sizes)
    return Chords._make([*(x[..., :functions] for x in by_head), combined.mT[:, :functions], total[:, :functions]])


POINTERS, SIZES = 15, 8  # arguments of the machine code


@cache
def _function() -> ctypes._CFunctionType:
    """The loop for this machine."""
    engine = engine_of(str(Loop().module), has_variables=True)
    kinds = [ctypes.c_void_p] * POINTERS + [ctypes.c_int64] * SIZES
    function = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("chords"))
    function.engine = engine  # type: ignore[attr-defined]  # it owns the machine code
    return function


class Loop:
    """The loop in LLVM's language; a name is a variable, which LLVM keeps in a register."""

    def __init__(self) -> None:
        from llvmlite import ir

        self.ir, self.module = ir, ir.Module("chords")
        self.number, self.whole = ir.DoubleType(), ir.IntType(64)
        self.vector = ir.VectorType(self.number, LANES)
        pointers = [self.number.as_pointer()] * (POINTERS - 2) + [self.whole.as_pointer()] * 2
        kind = ir.FunctionType(ir.VoidType(), pointers + [self.whole] * SIZES)
        function = ir.Function(self.module, kind, "chords")
        self.start = function.append_basic_block("start")
        self.do = ir.IRBuilder(self.start)
        arguments = iter(function.args)
        self.rows, self.few, self.many, self.u, self.mu, self.a = islice(arguments, 6)
        self.least, self.least_size, self.most, self.most_size = islice(arguments, 4)
        self.combined, self.total, self.room, self.slots, self.parts = islice(arguments, 5)
        self.cells, self.entries, self.numbers, self.width, self.heads, self.places, self.atoms, self.turns = arguments
        for argument in function.args[:POINTERS]:
            argument.add_attribute("noalias")
        self.fused, self.size_of = (
            ir.Function(self.module, ir.FunctionType(self.vector, [self.vector] * n), f"llvm.{name}.v{LANES}f64")
            for name, n in (("fmuladd", 3), ("fabs", 1))
        )
        with self.over(self.number_of(0), self.cells) as cell, self.over(self.number_of(0), self.width, LANES) as first:
            self._cell(cell, first)
        self.do.ret_void()

    def number_of(self, x: int) -> ir.Value:
        return self.ir.Constant(self.whole, x)

    def splat(self, x: float) -> ir.Value:
        return self.ir.Constant(self.vector, [x] * LANES)

    def variable(self, value: ir.Value) -> ir.Value:
        """A variable with its first value."""
        with self.do.goto_block(self.start):
            if self.start.is_terminated:
                self.do.position_before(self.start.terminator)
            found = self.do.alloca(value.type)
        self.do.store(value, found)
        return found

    def add(self, place: ir.Value, x: ir.Value) -> None:
        self.do.store(self.do.fadd(self.do.load(place), x), place)

    @contextmanager
    def over(self, first: ir.Value, last: ir.Value, step: int = 1) -> Iterator[ir.Value]:
        """What follows for each number from the first up to the last, which is left out."""
        i = self.variable(first)
        looks, body, after = (self.do.append_basic_block(name) for name in ("looks", "body", "after"))
        self.do.branch(looks)
        self.do.position_at_end(looks)
        self.do.cbranch(self.do.icmp_signed("<", self.do.load(i), last), body, after)
        self.do.position_at_end(body)
        yield self.do.load(i)
        self.do.store(self.do.add(self.do.load(i), self.number_of(step)), i)
        self.do.branch(looks)
        self.do.position_at_end(after)

    def at(self, *terms: tuple[ir.Value, ir.Value] | ir.Value) -> ir.Value:
        """A place in an array of several axes: ((i, n), (j, m), k) is (i n + j) m + k."""
        found = self.number_of(0)
        for term in terms:
            i, n = term if isinstance(term, tuple) else (term, self.number_of(1))
            found = self.do.mul(self.do.add(found, i), n)
        return found

    def pointer(self, array: ir.Value, at: ir.Value) -> ir.Value:
        return self.do.bitcast(self.do.gep(array, [at]), self.vector.as_pointer())

    def get(self, array: ir.Value, at: ir.Value) -> ir.Value:
        return self.do.load(self.pointer(array, at), align=8)

    def set(self, array: ir.Value, at: ir.Value, x: ir.Value) -> None:
        self.do.store(x, self.pointer(array, at), align=8)

    def each(self, array: ir.Value, at: ir.Value) -> ir.Value:
        """One number in all lanes."""
        one = self.do.insert_element(
            self.ir.Constant(self.vector, self.ir.Undefined), self.load(array, at), self.ir.IntType(32)(0)
        )
        return self.do.shuffle_vector(
            one, one, self.ir.Constant(self.ir.VectorType(self.ir.IntType(32), LANES), [0] * LANES)
        )

    def load(self, array: ir.Value, at: ir.Value) -> ir.Value:
        return self.do.load(self.do.gep(array, [at]))

    def is_less(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.do.fcmp_ordered("<", x, y)

    def least_of(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The lesser of two numbers, y where x is none."""
        return self.do.select(self.is_less(x, y), x, y)

    def most_of(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.do.select(self.is_less(y, x), x, y)

    def size(self, x: ir.Value) -> ir.Value:
        return self.do.call(self.size_of, [x])

    def plus_product(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x y + z"""
        return self.do.call(self.fused, [x, y, z])

    @contextmanager
    def over_places(self) -> Iterator[tuple[ir.Value, ir.Value]]:
        """What follows for each place, given its entries."""
        with self.over(self.number_of(0), self.places) as place:
            yield self.load(self.slots, place), self.load(self.slots, self.do.add(place, self.number_of(1)))

    def _cell(self, cell: ir.Value, first: ir.Value) -> None:
        """All about a cell and as many functions as lanes."""
        combined = self.do.gep(self.room, [self.do.mul(self.entries, self.number_of(LANES))])
        with self.over(self.number_of(0), self.entries) as entry:
            self.set(combined, self.at((entry, self.number_of(LANES))), self.splat(0.0))
        with self.over(self.number_of(0), self.heads) as head:
            self._head(cell, first, head, combined)
        total, other = self.variable(self.splat(0.0)), self.variable(self.splat(0.0))
        with self.over_places() as (begin, end):
            least = self.variable(self.splat(float("inf")))
            with self.over(begin, end) as entry:
                x = self.get(combined, self.at((entry, self.number_of(LANES))))
                self.set(self.combined, self.at((cell, self.entries), (entry, self.width), first), x)
                self.do.store(self.least_of(x, self.do.load(least)), least)
                self.do.store(self.plus_product(x, self.splat(0.0), self.do.load(other)), other)
            self.add(total, self.do.load(least))
        found = self.do.fadd(self.do.load(total), self.do.load(other))
        self.set(self.total, self.at((cell, self.width), first), found)

    def _head(self, cell: ir.Value, first: ir.Value, head: ir.Value, combined: ir.Value) -> None:
        """One head: its products, mu, the ends of its tables, a, and what it adds to the sum over the heads."""
        do, room, at_head = self.do, self.room, self.at((head, self.cells), (cell, self.width), first)
        few, many = (self.each(x, self.at((cell, self.heads), head)) for x in (self.few, self.many))
        size = do.fmul(self._products(cell, first, head), few)
        mu = self.variable(self.get(self.mu, at_head))
        self._least_quotients(cell, head, mu, size)
        mu = do.load(mu)
        sums = [self.variable(self.splat(0.0)) for _ in range(4)]
        with self.over_places() as (begin, end):
            least, most = self.variable(self.splat(float("inf"))), self.variable(self.splat(float("-inf")))
            with self.over(begin, end) as entry:
                x = self._less(cell, entry, head, mu)
                self.set(room, self.at((entry, self.number_of(LANES))), x)
                do.store(self.least_of(x, do.load(least)), least)
                do.store(self.most_of(x, do.load(most)), most)
            ends = do.load(least), do.load(most)
            for place, x in zip(sums, (ends[0], self.size(ends[0]), ends[1], self.size(ends[1])), strict=True):
                self.add(place, x)
        for array, place in zip((self.least, self.least_size, self.most, self.most_size), sums, strict=True):
            self.set(array, at_head, do.load(place))
        low, high = self.least_of(do.load(sums[0]), self.splat(0.0)), self.most_of(do.load(sums[2]), self.splat(0.0))
        width = do.fsub(high, low)
        a = do.fdiv(do.fsub(do.fmul(few, high), do.fmul(many, low)), width)
        a = do.select(self.is_less(self.splat(0.0), width), a, few)
        a = self.least_of(self.most_of(a, few), many)
        self.set(self.mu, at_head, mu)
        self.set(self.a, at_head, a)
        with self.over(self.number_of(0), self.entries) as entry:
            at = self.at((entry, self.number_of(LANES)))
            self.set(combined, at, self.plus_product(a, self.get(room, at), self.get(combined, at)))

    def _products(self, cell: ir.Value, first: ir.Value, head: ir.Value) -> ir.Value:
        """Writes u_h . x of each entry; the largest size of them."""
        largest = self.variable(self.splat(0.0))
        begin, end = self.load(self.parts, head), self.load(self.parts, self.do.add(head, self.number_of(1)))
        with self.over(self.number_of(0), self.entries) as entry:
            total = self.variable(self.splat(0.0))
            with self.over(begin, end) as atom:
                x = self.each(self.rows, self.at((cell, self.entries), (entry, self.numbers), atom))
                u = self.get(self.u, self.at((cell, self.atoms), (atom, self.width), first))
                self.do.store(self.plus_product(x, u, self.do.load(total)), total)
            product = self.do.load(total)
            self.set(self.room, self.at((entry, self.number_of(LANES))), product)
            self.do.store(self.most_of(self.size(product), self.do.load(largest)), largest)
        return self.do.load(largest)

    def _less(self, cell: ir.Value, entry: ir.Value, head: ir.Value, mu: ir.Value) -> ir.Value:
        """An entry's product less mu w."""
        product = self.get(self.room, self.at((entry, self.number_of(LANES))))
        return self.plus_product(self.do.fneg(mu), self._weight(cell, entry, head), product)

    def _weight(self, cell: ir.Value, entry: ir.Value, head: ir.Value) -> ir.Value:
        return self.each(self.rows, self.at((cell, self.entries), (entry, self.numbers), self.do.add(self.atoms, head)))

    def _least_quotients(self, cell: ir.Value, head: ir.Value, l: ir.Value, size: ir.Value) -> None:
        """Dinkelbach's turns, until N - l Z is nowhere below 0; no bound relies on what they find."""
        do, is_over = self.do, self.do.append_basic_block("found")
        with self.over(self.number_of(0), self.turns):
            sums, z = self.variable(self.splat(0.0)), self.variable(self.splat(0.0))
            now = do.load(l)
            with self.over_places() as (begin, end):
                least, at = self.variable(self.splat(float("inf"))), self.variable(self.splat(0.0))
                with self.over(begin, end) as entry:
                    x, w = self._less(cell, entry, head, now), self._weight(cell, entry, head)
                    is_less = self.is_less(x, do.load(least))
                    do.store(do.select(is_less, x, do.load(least)), least)
                    do.store(do.select(is_less, w, do.load(at)), at)
                self.add(sums, do.load(least))
                self.add(z, do.load(at))
            lower = do.fadd(now, do.fdiv(do.load(sums), do.load(z)))
            slack = do.fmul(do.fadd(size, self.size(lower)), self.splat(NEARLY))
            is_lower = do.and_(
                self.is_less(do.load(sums), self.splat(0.0)), self.is_less(self.splat(float("-inf")), lower)
            )
            do.store(do.select(is_lower, do.fsub(lower, slack), now), l)
            any_lower = do.icmp_unsigned("!=", do.bitcast(is_lower, self.ir.IntType(LANES)), self.ir.IntType(LANES)(0))
            more = do.append_basic_block("more")
            do.cbranch(any_lower, more, is_over)
            do.position_at_end(more)
        do.branch(is_over)
        do.position_at_end(is_over)
