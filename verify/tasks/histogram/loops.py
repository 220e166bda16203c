"""The innermost loop over multisets, by llvmlite where it is installed (weightproof[fast]), by numpy where it is not.

Both give the same counts: what either leaves near a tie is decided by others. The compiled loop is LLVM's own language:
a multiset is a lane of a vector of LANES numbers, and each neuron's value is multiplied by all rivals' weights while it
is in a register. `fmuladd` may be fused or not, which the radius allows for; no other operation is replaced.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from verify.arithmetic.machine_code import engine_of, has_wide_registers, is_compiled
from verify.tasks.histogram.narrow import LANES, Narrow
from verify.tasks.histogram.orders import ABOVE, ABSOLUTE, FLUSHED, Orders

NEAR, WRONG = 0, 1  # kinds of entries
WORK = 1 << 17  # numbers in a working array of numpy
EXACT = 1 << 24  # whole numbers below it are numbers of float32


@dataclass(frozen=True)
class LoopAsked:
    """What a loop is to look for in the prefixes first..last-1 of a cell.

    Shapes: wrong (number of prefixes,) is written: the sum of f over the leaves that are wrong; entries (n, 4) is
    written: prefix, first leaf, which of LANES leaves as bits, and NEAR or WRONG; limit (number of prefixes,) how many
    different tokens a leaf may have for what is wrong to be an entry; slope and rest are a threshold for margins. Where
    those near a tie are looked at `closer`, nothing is an entry, the threshold is 0, and the cell is in parts: its last
    forms are what rivals' differences have besides neurons.
    """

    narrow: Narrow
    first: int
    last: int
    slope: np.float32
    rest: np.float32
    limit: np.ndarray
    wrong: np.ndarray
    entries: np.ndarray
    closer: Closer | None = None


@dataclass(frozen=True)
class Closer:
    """How multisets near a tie are bounded by the shares of their `orders`.

    Shapes: near (number of prefixes,) is written: the sum of f over the leaves near a tie that were not looked at
    closer; weights (number of prefixes,) multiply f of the others; shares (2, positions) get what is added by these:
    at least and at most the share of their orders that is wrong, times f and the weight.
    """

    orders: Orders
    near: np.ndarray
    weights: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True)
class LoopShape:
    """What a loop that counts what is near knows of sizes: a leaf's tokens, vectors of tokens and of positions."""

    leaf: int
    tokens: int
    positions: int

    @classmethod
    def of(cls, narrow: Narrow, orders: Orders) -> LoopShape:
        return cls(narrow.prefixes.leaf, *(rows.shape[1] // LANES for rows in (orders.values, orders.shifts)))


Loop = Callable[[LoopAsked], tuple[int, int]]  # the prefix at which it ended, and how many entries there are


def loop_for(r: int, rivals: int, shape: LoopShape | None = None) -> Loop:
    """The loop for r forms and this many rivals, to be asked for a `closer` look where there is a shape."""
    return _compiled(r, rivals, shape) if is_compiled() else in_numpy


def room(narrow: Narrow) -> int:
    """The fewest entries that a loop must have room for, so that it comes to an end."""
    columns: int = narrow.leaves.shape[1]
    return 4 * (columns // LANES + 2)


def in_numpy(asked: LoopAsked) -> tuple[int, int]:
    """The loop in numpy: prefixes whose leaves come in the same orders together, in arrays that stay in the cache."""
    narrow, prefixes, W = asked.narrow, asked.narrow.prefixes, np.ascontiguousarray(asked.narrow.W.T)
    number, chosen, low = 0, those_with_room(asked), prefixes.multisets.distinct[prefixes.leaf]
    f_from, error = prefixes.f_from[chosen], narrow.error[:, None, None]
    buffers = [np.empty(max(WORK, len(rows) * prefixes.multisets.number(prefixes.leaf)), np.float32) for rows in
               (narrow.leaves, W, W)]  # fmt: skip
    for begin_of_f in np.unique(f_from).tolist():
        same = chosen[f_from == begin_of_f]
        n = int(prefixes.leaves[same[0]])
        f = prefixes.f[begin_of_f : begin_of_f + n]
        together = max(1, WORK // (n * len(narrow.leaves)))
        for begin in range(0, len(same), together):
            at = same[begin : begin + together]
            z, differences, shifted = (
                buffer[: rows * len(at) * n].reshape(rows, len(at), n)
                for buffer, rows in zip(buffers, (len(narrow.leaves), len(W), len(W)), strict=True)
            )
            u = (narrow.larger[prefixes.larger[at]] + narrow.smaller[prefixes.smaller[at]]).T
            np.add(u[:, :, None], narrow.leaves[:, None, :n], out=z)
            closer = asked.closer
            neurons = len(z) - (1 if closer is None else len(W))
            np.maximum(z[:neurons], 0, out=z[:neurons])
            np.matmul(W, z.reshape(len(z), -1)[: W.shape[1]], out=differences.reshape(len(W), -1))
            if closer is not None:
                differences += z[neurons:]
            is_wrong = np.add(differences, error, out=shifted).min(0, initial=np.inf) < 0
            asked.wrong[at] = _total(is_wrong, f)
            least = np.subtract(differences, error, out=shifted).min(0, initial=np.inf)
            is_near = ~((least > (asked.slope * z[-1] + asked.rest if closer is None else 0)) | is_wrong)
            if closer is not None:
                closer.shares[:] += closer.orders.judge(narrow, at, differences, is_near, closer.weights[at], f)
                closer.near[at] = _total(is_near, f)
                continue
            is_low = is_wrong & (low[:n] <= asked.limit[at][:, None])
            for kind, found in ((NEAR, is_near), (WRONG, is_low)):
                number = enter(asked.entries, number, at, found, kind)
    return int(chosen[-1]) + 1, number


def _total(chosen: np.ndarray, f: np.ndarray) -> np.ndarray:
    """The sums of f (n,) over what is chosen of each row (number, n): in float32 where that holds all sums exactly."""
    if int(f.sum()) >= EXACT:
        found: np.ndarray = np.where(chosen, f, 0).sum(1)
        return found
    return (chosen.astype(np.float32) @ f.astype(np.float32)).astype(np.int64)


def those_with_room(asked: LoopAsked) -> np.ndarray:
    """The first of the prefixes, as many as have room for all their leaves among the entries, twice."""
    leaves = asked.narrow.prefixes.leaves[asked.first : asked.last]
    needed = np.cumsum(leaves // LANES + 1) * 2
    number = max(1, int(np.searchsorted(needed, len(asked.entries), side="right")))
    return np.arange(asked.first, asked.first + min(number, len(leaves)))


def enter(entries: np.ndarray, number: int, prefixes: np.ndarray, found: np.ndarray, kind: int) -> int:
    """Writes what was found (prefixes, leaves) as entries after the first `number`: how many there are then."""
    n = found.shape[1]
    padded = np.pad(found, ((0, 0), (0, -n % LANES))).reshape(len(found), -1, LANES)
    bits = (padded * (1 << np.arange(LANES))).sum(2)
    i, block = np.nonzero(bits)
    into = entries[number : number + len(i)]
    into[:, 0], into[:, 1], into[:, 2], into[:, 3] = prefixes[i], block * LANES, bits[i, block], kind
    return number + len(i)


POINTERS = ("larger", "smaller", "i_larger", "i_smaller", "leaves", "table", "W", "error", "f", "f_from", "low",
            "limit", "wrong", "counted", "entries", "number", "reach", "values", "shifts", "drift", "held_larger",
            "held_smaller", "places", "rest", "multiple", "apart", "variance", "drift_each", "weights",
            "shares")  # fmt: skip
NUMBERS = ("first", "last", "stride", "most")


@cache
def _compiled(r: int, rivals: int, shape: LoopShape | None = None) -> Loop:
    """The loop as machine code for this machine."""
    vectors, together = (2, 10) if has_wide_registers() else (1, 5)
    engine = engine_of(source(r, rivals, vectors, together, shape))
    kinds = (
        [ctypes.c_void_p] * len(POINTERS) + [ctypes.c_int64] * len(NUMBERS) + [ctypes.c_float] * 4 + [ctypes.c_double]
    )
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(engine.get_function_address("judge"))

    def loop(asked: LoopAsked) -> tuple[int, int]:
        narrow, prefixes, number = asked.narrow, asked.narrow.prefixes, np.zeros(1, dtype=np.int64)
        low, f = prefixes.padded
        orders: tuple[np.ndarray, ...]
        orders, near, last, share, least = (number,) * 14, number, 0.0, 0.0, 0.0
        if asked.closer is not None:
            of, near = asked.closer.orders, asked.closer.near
            orders = of.reach, of.values, of.shifts, of.drift, of.larger, of.smaller, of.places, of.rest
            orders = *orders, of.dominance.multiple, of.dominance.apart, of.variance, of.drift_each
            orders = *orders, asked.closer.weights, asked.closer.shares
            last, share, least = float(of.last), float(of.share), of.least
        arrays = (narrow.larger, narrow.smaller, prefixes.larger, prefixes.smaller, prefixes.leaves, narrow.leaves,
                  narrow.W, narrow.error, f, prefixes.f_from, low, asked.limit, asked.wrong,
                  near, asked.entries, number, *orders)  # fmt: skip
        sizes = asked.first, asked.last, narrow.leaves.shape[1], len(asked.entries)
        end = function(*(array.ctypes.data for array in arrays), *sizes, asked.slope, asked.rest, last, share, least)
        return end, int(number[0])

    loop.engine = engine  # type: ignore[attr-defined]  # it owns the machine code
    return loop


def source(r: int, rivals: int, vectors: int, together: int, shape: LoopShape | None) -> str:
    """The loop in LLVM's language: `vectors` vectors of multisets at once, against up to `together` rivals at once."""
    return LoopSource(r, rivals, vectors, together, shape).text()


class LoopSource:
    """Lines of LLVM's language, in which every value is named once."""

    def __init__(self, r: int, rivals: int, vectors: int, together: int, shape: LoopShape | None) -> None:
        self.r, self.rivals, self.vectors, self.shape = r, rivals, vectors, shape
        self.neurons = r - 1 if shape is None else r - rivals
        parts = -(-rivals // together)
        ends = [rivals * i // parts for i in range(parts + 1)] if parts else [0]
        self.groups = [range(a, b) for a, b in zip(ends, ends[1:], strict=False)]
        self.lines: list[str] = []
        self.named = 0
        self.slope = self.rest = self.n = self.low_most = ""  # names of vectors, once there are such

    def new(self, expression: str) -> str:
        """A value of its own name."""
        self.named += 1
        self.lines.append(f"  %t{self.named} = {expression}")
        return f"%t{self.named}"

    def do(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def into(self, name: str) -> None:
        """Goes on into a block of this name, which begins here."""
        self.do(f"br label %{name}")
        self.label(name)

    def where(self, condition: str, name: str) -> None:
        """Begins a block that runs where the condition holds: `name.from` asks, and `name.end` is to come after it."""
        self.into(f"{name}.from")
        self.do(f"br i1 {condition}, label %{name}, label %{name}.end")
        self.label(name)

    def repeat(self, condition: str, name: str) -> None:
        """Ends a loop: the block runs again where the condition holds."""
        self.do(f"br i1 {condition}, label %{name}, label %{name}.end")
        self.label(f"{name}.end")

    def at(self, pointer: str, kind: str, index: str) -> str:
        return self.new(f"getelementptr {kind}, ptr {pointer}, i64 {index}")

    def load(self, kind: str, pointer: str, element: str, index: str, align: int = 4) -> str:
        return self.new(f"load {kind}, ptr {self.at(pointer, element, index)}, align {align}")

    def splat(self, kind: str, value: str) -> str:
        one = self.new(f"insertelement <{LANES} x {kind}> poison, {kind} {value}, i32 0")
        zeros = f"<{LANES} x i32> zeroinitializer"
        return self.new(f"shufflevector <{LANES} x {kind}> {one}, <{LANES} x {kind}> poison, {zeros}")

    def lesser(self, x: str, y: str) -> str:
        is_less = self.new(f"fcmp olt {V} {x}, {y}")
        return self.new(f"select {MASK} {is_less}, {V} {x}, {V} {y}")

    def text(self) -> str:
        arguments = [f"ptr %{name}" for name in POINTERS] + [f"i64 %{name}" for name in NUMBERS]
        given = [f"float %{name}" for name in ("slope", "rest.slope", "slots.less", "share")] + ["double %least"]
        self.lines = [
            f"declare {V} @llvm.fmuladd.v{LANES}f32({V}, {V}, {V})",
            f"declare i64 @llvm.vector.reduce.add.v{LANES}i64({L})",
            f"declare float @llvm.vector.reduce.fadd.v{LANES}f32(float, {V})",
            f"declare {V} @llvm.masked.gather.v{LANES}f32.v{LANES}p0({POINTED}, i32, {MASK}, {V})",
            f"declare {DOUBLE} @llvm.fmuladd.v{LANES}f64({DOUBLE}, {DOUBLE}, {DOUBLE})",
            "declare i32 @llvm.cttz.i32(i32, i1)",
            "declare float @llvm.fabs.f32(float)",
            f"declare {V} @llvm.fabs.v{LANES}f32({V})",
            f"define i64 @judge({', '.join([*arguments, *given])}) {{",
            "entry:",
            f"  %u = alloca [{self.r} x float], align 64",
        ]
        if self.shape is not None:
            for name, size in (("alpha", self.neurons), ("beta", self.neurons), ("held", LANES * self.shape.tokens),
                               ("sums", LANES * self.vectors * self.rivals),
                               ("away", LANES * self.shape.tokens), ("R", LANES), ("S", LANES),
                               *((name, LANES * LANES * self.shape.positions) for name in ENDS)):  # fmt: skip
                self.do(f"%{name} = alloca [{max(1, size)} x float], align 64")
        self.slope, self.rest = self.splat("float", "%slope"), self.splat("float", "%rest.slope")
        self.do("br label %prefix")
        self._prefix()
        self._leaves()
        return "\n".join([*self.lines, "}"])

    def _prefix(self) -> None:
        """The next prefix, its forms in u, and whether there is room for its entries."""
        self.label("prefix")
        self.do("%p = phi i64 [ %first, %entry ], [ %p.next, %prefix.end ]")
        self.do("%entered = phi i64 [ 0, %entry ], [ %entered.last, %prefix.end ]")
        self.do("%is.over = icmp sge i64 %p, %last")
        self.do("br i1 %is.over, label %return, label %room")
        self.label("return")
        self.do("store i64 %entered, ptr %number, align 8")
        self.do("ret i64 %p")
        self.label("room")
        n = self.new(f"sext i32 {self.load('i32', '%leaves', 'i32', '%p')} to i64")
        self.do(f"%n = add i64 {n}, 0")
        blocks = self.new(f"lshr i64 {self.new(f'add i64 %n, {LANES * (self.vectors + 1)}')}, {LANES.bit_length() - 1}")
        needed = self.new(f"add i64 %entered, {self.new(f'shl i64 {blocks}, 1')}")
        is_full = self.new(f"icmp sgt i64 {needed}, %most")
        self.do(f"br i1 {is_full}, label %return, label %forms")
        self.label("forms")
        rows = []
        for name in ("larger", "smaller"):
            index = self.new(f"sext i32 {self.load('i32', f'%i_{name}', 'i32', '%p')} to i64")
            rows.append(self.at(f"%{name}", "float", self.new(f"mul i64 {index}, {self.r}")))
        for begin in range(0, self.r, LANES):
            kind = f"<{min(LANES, self.r - begin)} x float>"
            x, y = (self.load(kind, row, "float", str(begin)) for row in rows)
            total = self.new(f"fadd {kind} {x}, {y}")
            self.do(f"store {kind} {total}, ptr {self.at('%u', 'float', str(begin))}, align 4")
        if self.shape is not None:
            self._held(self.shape)
            self.do(f"%weight = load double, ptr {self.at('%weights', 'double', '%p')}, align 8")
        self.do(f"%f.at = load i64, ptr {self.at('%f_from', 'i64', '%p')}, align 8")
        self.do(f"%low.most = load i32, ptr {self.at('%limit', 'i32', '%p')}, align 4")
        self.low_most = self.splat("i32", "%low.most")
        self.n = self.splat("i32", self.new("trunc i64 %n to i32"))
        self.do("br label %leaf")

    def _leaves(self) -> None:
        """Some leaves of a prefix: their differences, and what is right, wrong or near."""
        self.label("leaf")
        self.do("%j = phi i64 [ 0, %forms ], [ %j.next, %leaf.end ]")
        self.do("%found = phi i64 [ 0, %forms ], [ %found.last, %leaf.end ]")
        self.do("%entered.1 = phi i64 [ %entered, %forms ], [ %entered.last, %leaf.end ]")
        self.do("%near = phi i64 [ 0, %forms ], [ %near.last, %leaf.end ]")
        lo = hi = [INFINITE] * self.vectors
        D: list[str] = []
        before = "leaf"
        if not self.groups:
            D = self._values(str(self.r - 1), is_neuron=False)
        for number, group in enumerate(self.groups):
            sums, before = self._neurons(number, group, before)
            if self.shape is not None:
                sums = self._plus(group, sums)
            else:
                D = self._values(str(self.r - 1), is_neuron=False)
                sums = self._products(str(self.r - 1), group, D, sums)
            for i, c in enumerate(group):
                error = self.splat("float", self.load("float", "%error", "float", str(c)))
                for v in range(self.vectors):
                    x = sums[i * self.vectors + v]
                    if self.shape is not None:
                        at = self.at("%sums", "float", str(LANES * (c * self.vectors + v)))
                        self.do(f"store {V} {x}, ptr {at}, align 4")
                    lo = [*lo[:v], self.lesser(self.new(f"fsub {V} {x}, {error}"), lo[v]), *lo[v + 1 :]]
                    hi = [*hi[:v], self.lesser(self.new(f"fadd {V} {x}, {error}"), hi[v]), *hi[v + 1 :]]
        first = self.splat("i32", self.new("trunc i64 %j to i32"))
        counts = "%found", "%near", "%entered.1"
        for v in range(self.vectors):
            D_of, ends = D[v] if D else "", (lo[v], hi[v])
            if self.shape is not None and self.rivals:
                ends = self._closer(v, *ends, first, self.shape), ends[1]
            counts = self._classify(v, *ends, D_of, first, counts)
        found, near, entered = counts
        self.into("leaf.end")
        self.do(f"%found.last = add i64 {found}, 0")
        self.do(f"%entered.last = add i64 {entered}, 0")
        self.do(f"%near.last = add i64 {near}, 0")
        self.do(f"%j.next = add i64 %j, {LANES * self.vectors}")
        self.do("%has.more = icmp slt i64 %j.next, %n")
        self.do("br i1 %has.more, label %leaf, label %prefix.end")
        self.label("prefix.end")
        self.do(f"store i64 %found.last, ptr {self.at('%wrong', 'i64', '%p')}, align 8")
        if self.shape is not None:
            self.do(f"store i64 %near.last, ptr {self.at('%counted', 'i64', '%p')}, align 8")
        self.do("%p.next = add i64 %p, 1")
        self.do("br label %prefix")

    def _neurons(self, number: int, group: range, before: str) -> tuple[list[str], str]:
        """The sums over all neurons for a group of rivals, vector by vector for each, and the last block's name."""
        cells = len(group) * self.vectors
        if not self.neurons:
            return ["zeroinitializer"] * cells, before
        name = f"neuron{number}"
        self.into(name)
        self.do(f"%i{number} = phi i64 [ 0, %{before} ], [ %i{number}.next, %{name} ]")
        sums = [f"%sum{number}.{cell}" for cell in range(cells)]
        for total in sums:
            self.do(f"{total} = phi {V} [ zeroinitializer, %{before} ], [ {total}.next, %{name} ]")
        z = self._values(f"%i{number}", is_neuron=True)
        nexts = self._products(f"%i{number}", group, z, sums)
        for total, following in zip(sums, nexts, strict=True):
            self.do(f"{total}.next = bitcast {V} {following} to {V}")
        self.do(f"%i{number}.next = add i64 %i{number}, 1")
        self.do(f"%more{number} = icmp slt i64 %i{number}.next, {self.neurons}")
        self.repeat(f"%more{number}", name)
        return [f"{total}.next" for total in sums], f"{name}.end"

    def _values(self, i: str, *, is_neuron: bool) -> list[str]:
        """Form i of each vector's multisets, or its ReLU."""
        u = self.splat("float", self.load("float", "%u", "float", i))
        row = self.new(f"add i64 {self.new(f'mul i64 {i}, %stride')}, %j")
        found = []
        for v in range(self.vectors):
            step = self.load(V, "%table", "float", self.new(f"add i64 {row}, {LANES * v}"))
            x = self.new(f"fadd {V} {u}, {step}")
            if is_neuron:
                is_on = self.new(f"fcmp ogt {V} {x}, zeroinitializer")
                x = self.new(f"select {MASK} {is_on}, {V} {x}, {V} zeroinitializer")
            found.append(x)
        return found

    def _plus(self, group: range, sums: list[str]) -> list[str]:
        """The sums with each rival's own form."""
        forms = [x for c in group for x in self._values(str(self.neurons + c), is_neuron=False)]
        return [self.new(f"fadd {V} {total}, {x}") for total, x in zip(sums, forms, strict=True)]

    def _products(self, i: str, group: range, z: list[str], sums: list[str]) -> list[str]:
        """The sums with what form i adds to them."""
        row, found = self.new(f"mul i64 {i}, {self.rivals}"), []
        for at, c in enumerate(group):
            w = self.splat("float", self.load("float", "%W", "float", self.new(f"add i64 {row}, {c}")))
            for v in range(self.vectors):
                total = sums[at * self.vectors + v]
                found.append(self.new(f"call {V} @llvm.fmuladd.v{LANES}f32({V} {w}, {V} {z[v]}, {V} {total})"))
        return found

    def _classify(
        self, v: int, lo: str, hi: str, D: str, first: str, counts: tuple[str, str, str]
    ) -> tuple[str, str, str]:
        """Counts what is wrong of one vector, and enters what is near a tie, or wrong with few different tokens."""
        found, near, entered = counts
        threshold = "zeroinitializer"
        if self.shape is None:
            threshold = self.new(f"call {V} @llvm.fmuladd.v{LANES}f32({V} {self.slope}, {V} {D}, {V} {self.rest})")
        is_bad, is_near = self._kinds(v, lo, hi, threshold, first)
        begin = self.new(f"add i64 %j, {LANES * v}")
        if self.shape is not None:
            return self._sum(f"count{v}", is_bad, begin, found), self._sum(f"near{v}", is_near, begin, near), entered
        entered = self._entry(f"near{v}", is_near, begin, NEAR, entered)
        self.where(self._any(is_bad), f"count{v}")
        more = self._added(is_bad, begin, found)
        is_asked = self.new("icmp sge i32 %low.most, 0")
        self.do(f"br i1 {is_asked}, label %low{v}, label %low{v}.end")
        self.label(f"low{v}")
        low = self.load(I, "%low", "i32", begin)
        is_low = self.new(f"and {MASK} {is_bad}, {self.new(f'icmp sle {I} {low}, {self.low_most}')}")
        with_low = self._entry(f"few{v}", is_low, begin, WRONG, entered)
        self.into(f"low{v}.done")
        self.into(f"low{v}.end")
        self.do(f"%entered.low{v} = phi i64 [ {entered}, %count{v} ], [ {with_low}, %low{v}.done ]")
        self.into(f"count{v}.end")
        self.do(f"%found{v} = phi i64 [ {found}, %count{v}.from ], [ {more}, %low{v}.end ]")
        self.do(f"%entered{v} = phi i64 [ {entered}, %count{v}.from ], [ %entered.low{v}, %low{v}.end ]")
        return f"%found{v}", near, f"%entered{v}"

    def _kinds(self, v: int, lo: str, hi: str, threshold: str, first: str) -> tuple[str, str]:
        """What is wrong of one vector, and what is near a tie."""
        is_right, is_bad = self.new(f"fcmp ogt {V} {lo}, {threshold}"), self.new(f"fcmp olt {V} {hi}, zeroinitializer")
        lanes = ", ".join(f"i32 {LANES * v + lane}" for lane in range(LANES))
        index = self.new(f"add {I} {first}, <{lanes}>")
        is_in = self.new(f"icmp slt {I} {index}, {self.n}")
        is_bad = self.new(f"and {MASK} {is_bad}, {is_in}")
        is_known = self.new(f"or {MASK} {is_right}, {is_bad}")
        return is_bad, self.new(f"and {MASK} {self.new(f'xor {MASK} {is_known}, {ONES}')}, {is_in}")

    def _held(self, shape: LoopShape) -> None:
        """How often a prefix holds each token."""
        rows = []
        for name in ("larger", "smaller"):
            index = self.new(f"sext i32 {self.load('i32', f'%i_{name}', 'i32', '%p')} to i64")
            rows.append(self.at(f"%held_{name}", "float", self.new(f"mul i64 {index}, {LANES * shape.tokens}")))
        for w in range(shape.tokens):
            x, y = (self.load(V, row, "float", str(LANES * w)) for row in rows)
            self.do(
                f"store {V} {self.new(f'fadd {V} {x}, {y}')}, ptr {self.at('%held', 'float', str(LANES * w))}, align 4"
            )

    def _any(self, mask: str) -> str:
        return self.new(f"icmp ne i{LANES} {self.new(f'bitcast {MASK} {mask} to i{LANES}')}, 0")

    def _all(self, mask: str) -> str:
        return self.new(f"icmp eq i{LANES} {self.new(f'bitcast {MASK} {mask} to i{LANES}')}, -1")

    def _closer(self, v: int, lo: str, hi: str, first: str, shape: LoopShape) -> str:
        """The least differences of one vector: none where the orders of what is near a tie have been looked at."""
        _, is_near = self._kinds(v, lo, hi, "zeroinitializer", first)
        number = self._added(is_near, self.new(f"add i64 %j, {LANES * v}"), "0")
        orders = self.new(f"fmul double {self.new(f'uitofp i64 {number} to double')}, %weight")
        is_asked = self.new(f"and i1 {self._any(is_near)}, {self.new(f'fcmp oge double {orders}, %least')}")
        self.where(is_asked, f"close{v}")
        for name, start in ENDS.items():
            for at in range(LANES * shape.positions):
                self.do(f"store {V} {start}, ptr {self.at(f'%{name}', 'float', str(LANES * at))}, align 4")
        if self.neurons:
            self._sides(v, is_near)
        self.into(f"rivals{v}.from")
        self.into(f"rival{v}")
        self.do(f"%c{v} = phi i64 [ 0, %rivals{v}.from ], [ %c{v}.next, %turn{v}.end ]")
        row = self.new(f"add i64 {self.new(f'mul i64 %c{v}, {LANES * self.vectors}')}, {LANES * v}")
        total, error = self.load(V, "%sums", "float", row), self.load("float", "%error", "float", f"%c{v}")
        low = self.new(f"fsub {V} {total}, {self.splat('float', error)}")
        multiple, apart = (self.load("float", f"%{name}", "float", f"%c{v}") for name in ("multiple", "apart"))
        of_first = self.load(V, "%sums", "float", str(LANES * v))
        of_first = self.new(f"fmul {V} {of_first}, {self.splat('float', multiple)}")
        more = self.new(f"fsub {V} {total}, {of_first}")
        is_ahead = self.new(f"fcmp ogt {V} {more}, {self.splat('float', apart)}")
        is_behind = self.new(f"and {MASK} {is_near}, {self.new(f'fcmp ole {V} {low}, zeroinitializer')}")
        is_turned = self.new(f"and {MASK} {is_behind}, {self.new(f'xor {MASK} {is_ahead}, {ONES}')}")
        self.where(self._any(is_turned), f"turn{v}")
        self._shares(v, row, is_turned, shape)
        self.into(f"turn{v}.end")
        self.do(f"%c{v}.next = add i64 %c{v}, 1")
        has_more = self.new(f"icmp slt i64 %c{v}.next, {self.rivals}")
        self.do(f"br i1 {has_more}, label %rival{v}, label %rivals{v}.done")
        self.label(f"rivals{v}.done")
        self._add_shares(v, is_near, shape)
        none = self.new(f"select {MASK} {is_near}, {V} {INFINITE}, {V} {lo}")
        self.into(f"close{v}.done")
        self.into(f"close{v}.end")
        return self.new(f"phi {V} [ {lo}, %close{v}.from ], [ {none}, %close{v}.done ]")

    def _each_lane(self, name: str, mask: str) -> str:
        """Begins a loop over the lanes in a mask that has bits: the lane."""
        bits = self.new(f"zext i{LANES} {self.new(f'bitcast {MASK} {mask} to i{LANES}')} to i32")
        self.into(f"{name}.from")
        self.into(name)
        self.do(f"%{name}.bits = phi i32 [ {bits}, %{name}.from ], [ %{name}.next, %{name} ]")
        lane = self.new(f"call i32 @llvm.cttz.i32(i32 %{name}.bits, i1 true)")
        return self.new(f"zext i32 {lane} to i64")

    def _end_of_lanes(self, name: str) -> None:
        """Ends the loop over lanes."""
        less = self.new(f"sub i32 %{name}.bits, 1")
        self.do(f"%{name}.next = and i32 %{name}.bits, {less}")
        self.do(f"%{name}.more = icmp ne i32 %{name}.next, 0")
        self.repeat(f"%{name}.more", name)

    def _shares(self, v: int, row: str, is_turned: str, shape: LoopShape) -> None:
        """Takes the shares of the orders in which a rival is ahead, or behind, of each lane that it may turn."""
        R, S, moved, bent = self._spread(v, shape, is_turned)
        for name, x in (("R", R), ("S", S)):
            self.do(f"store {V} {x}, ptr %{name}, align 4")
        bent, less = (self.splat("float", x) for x in (bent, "%slots.less"))
        factors = [
            [self.load(V, f"%{name}", "float", str(LANES * w)) for name in ("variance", "drift_each")]
            for w in range(shape.positions)
        ]
        lane = self._each_lane(f"lane{v}", is_turned)
        f = self.splat("float", self.load("float", "%sums", "float", self.new(f"add i64 {row}, {lane}")))
        R, S = (self.splat("float", self.load("float", f"%{name}", "float", lane)) for name in ("R", "S"))
        for w, (x, (variance, drift_each)) in enumerate(zip(moved, factors, strict=True)):
            variance = self.new(f"fadd {V} {self.new(f'fmul {V} {variance}, {R}')}, {_all_of(FLUSHED)}")
            x = self.new(f"fadd {V} {x}, {self.new(f'fmul {V} {drift_each}, {S}')}")
            most = self.new(f"fmul {V} {less}, {variance}")
            g, at = self.new(f"fadd {V} {f}, {x}"), self._vector(lane, w, shape.positions)
            size = self.new(f"call {V} @llvm.fabs.v{LANES}f32({V} {g})")
            share = self._cantelli(self.new(f"fsub {V} {size}, {bent}"), variance, most)
            is_right = self.new(f"fcmp ogt {V} {g}, zeroinitializer")
            of_behind, of_ahead = (
                self.new(f"select {MASK} {is_right}, {V} {x}, {V} {y}")
                for x, y in ((share, _all_of(1.0)), (_all_of(1.0), share))
            )
            behind, ahead = (self.at(f"%{name}", "float", at) for name in ENDS)
            before = self.new(f"load {V}, ptr {behind}, align 4")
            self.do(f"store {V} {self.new(f'fadd {V} {before}, {of_behind}')}, ptr {behind}, align 4")
            before = self.new(f"load {V}, ptr {ahead}, align 4")
            self.do(f"store {V} {self.lesser(of_ahead, before)}, ptr {ahead}, align 4")
        self._end_of_lanes(f"lane{v}")

    def _cantelli(self, m: str, variance: str, most: str) -> str:
        """At most the share of orders in which a sum is not positive that is m less what varies."""
        square = self.new(f"fmul {V} {m}, {m}")
        share = self.new(f"fdiv {V} {variance}, {self.new(f'fadd {V} {variance}, {square}')}")
        share = self.new(f"fadd {V} {share}, {_all_of(ABSOLUTE)}")
        is_beyond = self.new(f"fcmp ogt {V} {square}, {most}")
        share = self.new(f"select {MASK} {is_beyond}, {V} zeroinitializer, {V} {share}")
        is_some = self.new(f"fcmp ogt {V} {m}, zeroinitializer")
        return self.new(f"select {MASK} {is_some}, {V} {share}, {V} {_all_of(1.0)}")

    def _add_shares(self, v: int, is_near: str, shape: LoopShape) -> None:
        """Adds the shares of each near lane's orders, times what they weigh, to those of all."""
        lane = self._each_lane(f"add.lane{v}", is_near)
        begin = self.new(f"add i64 %j, {LANES * v}")
        at = self.new(f"add i64 {self.new(f'add i64 %f.at, {begin}')}, {lane}")
        f = self.new(f"uitofp i64 {self.load('i64', '%f', 'i64', at, 8)} to double")
        weight = self.splat("double", self.new(f"fmul double {f}, %weight"))
        for end, name in enumerate(reversed(ENDS)):
            for w in range(shape.positions):
                share = self.load(V, f"%{name}", "float", self._vector(lane, w, shape.positions))
                if name == "behind":
                    share = self.lesser(share, _all_of(1.0))
                else:
                    share = self.new(f"fsub {V} {_all_of(1.0)}, {share}")
                into = self.at("%shares", "double", str(LANES * (end * shape.positions + w)))
                before = self.new(f"load {DOUBLE}, ptr {into}, align 8")
                wide = self.new(f"fpext {V} {share} to {DOUBLE}")
                more = self.new(
                    f"call {DOUBLE} @llvm.fmuladd.v{LANES}f64({DOUBLE} {wide}, {DOUBLE} {weight}, {DOUBLE} {before})"
                )
                self.do(f"store {DOUBLE} {more}, ptr {into}, align 8")
        self._end_of_lanes(f"add.lane{v}")

    def _sides(self, v: int, is_near: str) -> None:
        """Which neurons are on or off in all of a vector's near multisets, and what the others may be off by."""
        self.into(f"side{v}")
        self.do(f"%s{v} = phi i64 [ 0, %close{v} ], [ %s{v}.next, %side{v} ]")
        u = self.splat("float", self.load("float", "%u", "float", f"%s{v}"))
        row = self.new(f"add i64 {self.new(f'mul i64 %s{v}, %stride')}, {self.new(f'add i64 %j, {LANES * v}')}")
        z = self.new(f"fadd {V} {u}, {self.load(V, '%table', 'float', row)}")
        reach = self.load("float", "%reach", "float", f"%s{v}")
        above, below = (self.splat("float", x) for x in (reach, self.new(f"fneg float {reach}")))
        is_out = self.new(f"xor {MASK} {is_near}, {ONES}")
        is_on, is_off = (
            self._all(self.new(f"or {MASK} {is_out}, {self.new(f'fcmp {asked} {V} {z}, {end}')}"))
            for asked, end in (("ogt", above), ("olt", below))
        )
        off_or_bent = self.new(f"select i1 {is_off}, float 0.0, float 0.5")
        alpha = self.new(f"select i1 {is_on}, float 1.0, float {off_or_bent}")
        is_kept = self.new(f"or i1 {is_on}, {is_off}")
        beta = self.new(f"select i1 {is_kept}, float 0.0, float {self.new(f'fmul float {reach}, 0.5')}")
        for name, value in (("alpha", alpha), ("beta", beta)):
            self.do(f"store float {value}, ptr {self.at(f'%{name}', 'float', f'%s{v}')}, align 4")
        self.do(f"%s{v}.next = add i64 %s{v}, 1")
        has_more = self.new(f"icmp slt i64 %s{v}.next, {self.neurons}")
        self.repeat(has_more, f"side{v}")

    def _spread(self, v: int, shape: LoopShape, is_turned: str) -> tuple[str, str, list[str], str]:
        """As `Orders._spread`, of the difference to rival c in those of a vector's multisets that it may turn."""
        sizes = [("values", shape.tokens), ("shifts", shape.positions)]
        own = self.new(f"add i64 %c{v}, {self.neurons}")
        starts = [self.load(V, f"%{name}", "float", self._vector(own, w, n)) for name, n in sizes for w in range(n)]
        bent = "0.0"
        if self.neurons:
            starts, bent = self._linear(v, starts, sizes)
        q, shifts = starts[: shape.tokens], starts[shape.tokens :]
        held = [self.load(V, "%held", "float", str(LANES * w)) for w in range(shape.tokens)]
        centre = self.new(
            f"fmul float %share, {self._sum_of([self.new(f'fmul {V} {n}, {x}') for n, x in zip(held, q, strict=True)])}"
        )
        middle = self.splat("float", centre)
        away = [self.new(f"fsub {V} {x}, {middle}") for x in q]
        squares = [self.new(f"fmul {V} {x}, {x}") for x in away]
        total = self._sum_of([self.new(f"fmul {V} {n}, {x}") for n, x in zip(held, squares, strict=True)])
        totals, sums = self.splat("float", total), "zeroinitializer"
        for w, x in enumerate(away):
            self.do(f"store {V} {x}, ptr {self.at('%away', 'float', str(LANES * w))}, align 4")
        for place in range(shape.leaf):
            row = self.new(f"mul i64 %stride, {place}")
            begin = self.new(f"add i64 %j, {LANES * v}")
            tokens = self.load(I, "%places", "i32", self.new(f"add i64 {row}, {begin}"))
            at = self.new(f"getelementptr float, ptr %away, {I} {tokens}")
            asked = f"{POINTED} {at}, i32 4, {MASK} {is_turned}, {V} zeroinitializer"
            found = self.new(f"call {V} @llvm.masked.gather.v{LANES}f32.v{LANES}p0({asked})")
            sums = self.new(f"fadd {V} {sums}, {found}")
            totals = self.new(f"fadd {V} {totals}, {self.new(f'fmul {V} {found}, {found}')}")
        moved = []
        for w, x in enumerate(shifts):
            drift = self.load(V, "%drift", "float", str(LANES * w))
            moved.append(self.new(f"fadd {V} {x}, {self.new(f'fmul {V} {drift}, {middle}')}"))
        larger = self.new(f"fmul float {bent}, {ABOVE!r}")
        return totals, sums, moved, self.new(f"fadd float {larger}, {self.load('float', '%rest', 'float', f'%c{v}')}")

    def _linear(self, v: int, starts: list[str], sizes: list[tuple[str, int]]) -> tuple[list[str], str]:
        """Rows of tokens and positions with what neurons add to them, and what those add that are bent."""
        self.into(f"add{v}.from")
        self.into(f"add{v}")
        self.do(f"%a{v} = phi i64 [ 0, %add{v}.from ], [ %a{v}.next, %add{v} ]")
        rows = [(name, n, w) for name, n in sizes for w in range(n)]
        names = [f"%{name}{v}.{w}" for name, _, w in rows]
        for name, start in zip(names, starts, strict=True):
            self.do(f"{name} = phi {V} [ {start}, %add{v}.from ], [ {name}.next, %add{v} ]")
        self.do(f"%bent{v} = phi float [ 0.0, %add{v}.from ], [ %bent{v}.next, %add{v} ]")
        at = self.new(f"add i64 {self.new(f'mul i64 %a{v}, {self.rivals}')}, %c{v}")
        weight = self.load("float", "%W", "float", at)
        alpha, beta = (self.load("float", f"%{name}", "float", f"%a{v}") for name in ("alpha", "beta"))
        factor = self.splat("float", self.new(f"fmul float {weight}, {alpha}"))
        for name, (table, n, w) in zip(names, rows, strict=True):
            x = self.load(V, f"%{table}", "float", self._vector(f"%a{v}", w, n))
            self.do(f"{name}.next = call {V} @llvm.fmuladd.v{LANES}f32({V} {factor}, {V} {x}, {V} {name})")
        size = self.new(f"call float @llvm.fabs.f32(float {weight})")
        self.do(f"%bent{v}.next = fadd float %bent{v}, {self.new(f'fmul float {size}, {beta}')}")
        self.do(f"%a{v}.next = add i64 %a{v}, 1")
        has_more = self.new(f"icmp slt i64 %a{v}.next, {self.neurons}")
        self.repeat(has_more, f"add{v}")
        return [f"{name}.next" for name in names], f"%bent{v}.next"

    def _vector(self, row: str, w: int, n: int) -> str:
        """Where vector w of a row of n vectors begins."""
        return self.new(f"add i64 {self.new(f'mul i64 {row}, {LANES * n}')}, {LANES * w}")

    def _sum_of(self, vectors: list[str]) -> str:
        total = vectors[0]
        for x in vectors[1:]:
            total = self.new(f"fadd {V} {total}, {x}")
        return self.new(f"call reassoc float @llvm.vector.reduce.fadd.v{LANES}f32(float 0.0, {V} {total})")

    def _added(self, mask: str, begin: str, total: str) -> str:
        """The total and f of the leaves in a mask."""
        f = self.load(L, "%f", "i64", self.new(f"add i64 %f.at, {begin}"), 8)
        chosen = self.new(f"select {MASK} {mask}, {L} {f}, {L} zeroinitializer")
        return self.new(f"add i64 {total}, {self.new(f'call i64 @llvm.vector.reduce.add.v{LANES}i64({L} {chosen})')}")

    def _sum(self, name: str, mask: str, begin: str, total: str) -> str:
        """As `_added`, without a look at f where the mask has no bits."""
        self.where(self._any(mask), name)
        more = self._added(mask, begin, total)
        self.into(f"{name}.end")
        return self.new(f"phi i64 [ {total}, %{name}.from ], [ {more}, %{name} ]")

    def _entry(self, name: str, mask: str, begin: str, kind: int, entered: str) -> str:
        """Writes an entry where a mask has bits: how many there are then."""
        bits = self.new(f"bitcast {MASK} {mask} to i{LANES}")
        has_bits = self.new(f"icmp ne i{LANES} {bits}, 0")
        self.where(has_bits, name)
        row = self.at("%entries", "i32", self.new(f"shl i64 {entered}, 2"))
        prefix, leaf = self.new("trunc i64 %p to i32"), self.new(f"trunc i64 {begin} to i32")
        for at, value in enumerate((prefix, leaf, self.new(f"zext i{LANES} {bits} to i32"), str(kind))):
            self.do(f"store i32 {value}, ptr {self.at(row, 'i32', str(at))}, align 4")
        more = self.new(f"add i64 {entered}, 1")
        self.into(f"{name}.end")
        return self.new(f"phi i64 [ {entered}, %{name}.from ], [ {more}, %{name} ]")


def _all_of(x: float) -> str:
    """A vector of this number of float32."""
    return f"<{', '.join([f'float {x!r}'] * LANES)}>"


V, I, L, MASK = f"<{LANES} x float>", f"<{LANES} x i32>", f"<{LANES} x i64>", f"<{LANES} x i1>"
DOUBLE = f"<{LANES} x double>"
ONES = f"<{', '.join(['i1 true'] * LANES)}>"
INFINITE = f"<{', '.join(['float 0x7FF0000000000000'] * LANES)}>"
ENDS = {"behind": "zeroinitializer", "ahead": _all_of(1.0)}  # of each lane at each position, and where they start
POINTED = f"<{LANES} x ptr>"
