"""Bounds on affine functions of what follows one attention layer, over products of token sets.

Forwards, each block's arguments are bounded; backwards, a function of blocks' results becomes one of their arguments,
until it is one of the attention's atoms, which `verify.reduction.quotients` bounds. What is carried along is

    target >= constant + sum over sources of coefficients . results - error     (for an upper bound: <=, + error),

true in real arithmetic for the float numbers as they stand: a coefficient that is rounded is another coefficient, and
what the difference can do, |difference| times a bound on the result's size, goes to `error`. The steps:

* relu and the other functions of one number: coefficient a >= 0 takes the line below f, a < 0 the line above it;
* LayerNorm, y = (x - mean) / s with 1 / s in [least, most] on the cell: a . y = q / s, q = (a - mean of a) . x; of
  RMSNorm, y = x / s, where nothing is centred, q = a . x.
  Where nothing else is left, q / s is extreme at an end of q and an end of 1 / s. Else
  a . y = middle q + e, |e| <= half width max |q|, and middle q goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verify.arithmetic.slack import ENLARGE_LONG as ENLARGE
from verify.arithmetic.slack import LEAST, U, gamma
from verify.engine.one_layer.after import NORMS, RMS
from verify.engine.one_layer.layer import Affine, Block, Layer
from verify.engine.one_layer.lines import Lines, lines
from verify.engine.rules.normalisation import deviation
from verify.reduction.quotients import Entries, LowerBounds, Quotients, Tables

ATTENTION = -1
Shaped = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Function:
    """Affine functions of results, for each cell: coefficients by source (cells, functions, results).

    `size` is the sum of the absolute values of what was added to `constant`. Shapes: (cells, functions).
    """

    constant: Tensor
    size: Tensor
    error: Tensor
    coefficients: dict[int, Tensor]

    def shaped(self, at: Shaped) -> Function:
        """The constants alone, of another shape."""
        return Function(at(self.constant), at(self.size), at(self.error), {})

    def __neg__(self) -> Function:
        return replace(self, constant=-self.constant, coefficients={s: -c for s, c in self.coefficients.items()})


def both(x: Function, y: Function) -> Function:
    """The functions of x, then those of y, which have the same sources."""
    return Function(
        torch.cat([x.constant, y.constant], 1),
        torch.cat([x.size, y.size], 1),
        torch.cat([x.error, y.error], 1),
        {s: torch.cat([c, y.coefficients[s]], 1) for s, c in x.coefficients.items()},
    )


def widened(end: Tensor, by: Tensor, sign: int) -> Tensor:
    """A lower end (sign -1) or an upper one moved outwards by at least so much."""
    return end + sign * (by + 2 * U * (end.abs() + by))


@dataclass(frozen=True)
class Root:
    """Between which numbers 1 / s of a norm lies."""

    least: Tensor
    most: Tensor


def tables_of(layer: Layer) -> Tables:
    """What the bounds read of a layer's attention."""
    weights, values = layer.weights, layer.values
    return Tables(weights.mid, weights.radius, values.mid, values.radius, layer.head, layer.largest)


class Cells:
    """A batch of cells of one layer, its blocks bounded forwards; tokens are listed by their ranks."""

    def __init__(self, layer: Layer, entries: Entries, tables: Tables | None = None) -> None:
        self.layer = layer
        self.quotients = Quotients(tables or tables_of(layer), entries)
        self.n = len(entries.at)
        self.added = gamma(4 * len(layer.blocks) + 64)  # to a function's constant: its sums, of their absolute values
        self.sizes: dict[int, Tensor] = {ATTENTION: layer.largest.expand(self.n, -1)}  # bounds on |results|
        self.lines: dict[int, Lines] = {}
        self.roots: dict[int, Root] = {}
        self.ends: dict[int, tuple[Tensor, Tensor]] = {}  # of the arguments
        self.rounding: dict[int, Tensor] = {}
        self.argument_sizes: dict[int, Tensor] = {}
        for b, block in enumerate(layer.blocks):
            self._bound(b, block)

    def _bound(self, b: int, block: Block) -> None:
        """What the backward pass needs of a block: lines, or the ends of 1 / s."""
        self.rounding[b], self.argument_sizes[b] = self._rounding(block.given)
        if block.function in NORMS:
            self.roots[b] = self._root(block)
            d = torch.full((self.n, block.size), float(block.size), dtype=torch.float64)
            self.sizes[b] = d.sqrt() * ENLARGE
            return
        rows = self._rows(block.given)
        low, high = self.range(rows)
        if not self.roots:  # after a norm, whose ends are wide themselves, it costs more than it saves
            low, high = self._sharpened(block, rows, low, high)
        self.ends[b] = low, high
        self.lines[b] = lines(block.function, low, high)
        self.sizes[b] = self.lines[b].size

    def _sharpened(self, block: Block, rows: Function, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Both ends again by `least`, where a line would be off its function, for as many rows as any cell needs."""
        is_off = (low < 0) & (high > 0) if block.function == "relu" else high > low
        most = int(is_off.sum(1).max())
        if not most:
            return low, high
        at = is_off.double().argsort(1, descending=True)[:, :most]
        some = Function(
            rows.constant.gather(1, at),
            rows.size.gather(1, at),
            rows.error.gather(1, at),
            {s: c[torch.arange(self.n).unsqueeze(1), at] for s, c in rows.coefficients.items()},
        )
        found = self.least(both(some, -some)).low
        low = low.scatter(1, at, torch.fmax(low.gather(1, at), found[:, :most]))
        return low, high.scatter(1, at, torch.fmin(high.gather(1, at), -found[:, most:]))

    def _rounding(self, given: Affine) -> tuple[Tensor, Tensor]:
        """For an affine map that coefficients pass through: the error per unit of a coefficient, and |result|.

        A coefficient c on row i makes c A_i: products that are summed with those of the other rows, as many as rows,
        and added to what there is, all within gamma of the absolute values; and A_i is off by its radius.
        """
        g = gamma(2 * len(given.constant.mid) + 16)
        rounding = (g * given.constant.mid.abs() + given.constant.radius).expand(self.n, -1)
        size = (given.constant.mid.abs() + given.constant.radius).expand(self.n, -1)
        for source, part in given.parts.items():
            absolute = part.mid.abs()
            rounding = rounding + self.sizes[source] @ (g * absolute + part.radius).T
            size = size + self.sizes[source] @ (absolute + part.radius).T
        return (rounding * ENLARGE + LEAST) * ENLARGE, (size * ENLARGE + LEAST) * ENLARGE

    def _rows(self, given: Affine) -> Function:
        """The rows of an affine map as functions; their radii are their errors."""
        error = given.constant.radius.expand(self.n, -1)
        for source, part in given.parts.items():
            error = error + self.sizes[source] @ part.radius.T
        constant = given.constant.mid.expand(self.n, -1)
        parts = {s: part.mid.expand(self.n, *part.mid.shape) for s, part in given.parts.items()}
        return Function(constant, constant.abs(), (error * ENLARGE + LEAST) * ENLARGE, parts)

    def gaps(self, right: Tensor, rivals: Tensor) -> Function:
        """The logit of each cell's right class (cells,) less those of some rivals (cells, rivals)."""
        logits = self.layer.logits
        c, r = logits.constant.mid, logits.constant.radius
        constant = c[right].unsqueeze(1) - c[rivals]
        size = c[right].abs().unsqueeze(1) + c[rivals].abs()
        error = r[right].unsqueeze(1) + r[rivals] + 2 * U * size
        parts = {}
        for source, part in logits.parts.items():
            parts[source] = part.mid[right].unsqueeze(1) - part.mid[rivals]
            off = part.radius[right].unsqueeze(1) + part.radius[rivals] + 2 * U * parts[source].abs()
            error = error + (off @ self.sizes[source].unsqueeze(-1)).squeeze(-1)
        return Function(constant, size, (error * ENLARGE + LEAST) * ENLARGE, parts)

    def range(self, f: Function) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds on functions: (cells, functions) each."""
        last = max(f.coefficients, default=ATTENTION)
        if last in self.lines:
            count = f.constant.shape[1]
            low = self.lower(self._by_lines(both(f, -f), last))
            return low[:, :count], -low[:, count:]
        if last in self.roots:
            return self._by_root(f, last)
        return self.quotients.range(*self._atoms(f))

    def lower(self, f: Function) -> Tensor:
        """The lower bounds of `range`, as many functions at every block: upper ones would double them at each."""
        last = max(f.coefficients, default=ATTENTION)
        return self.lower(self._by_lines(f, last)) if last in self.lines else self.range(f)[0]

    def least(self, f: Function, *, by_token: bool = False) -> LowerBounds:
        """Lower bounds on functions, and a table of each cell whose least sum is nearly the least of them."""
        last = max(f.coefficients, default=ATTENTION)
        if last in self.lines:
            return self.least(self._by_lines(f, last), by_token=by_token)
        if last not in self.roots:
            return self.quotients.least(*self._atoms(f), by_least_quotients=not self.roots, by_token=by_token)
        root, is_alone = self.roots[last], set(f.coefficients) == {last}
        q = self._argument(f, last)
        if is_alone:

            def scaled(low: Tensor, at: Shaped) -> Tensor:
                return self._plus_constant(f.shaped(at), torch.minimum(low * at(root.least), low * at(root.most)), -1)

            return self.least(q, by_token=by_token).each(scaled)
        middle, extra = self._through_root(f, last, q, self._largest(q))
        return self.least(middle, by_token=by_token).each(lambda low, at: widened(low, at(extra), -1))

    def _atoms(self, f: Function) -> tuple[Tensor, Tensor, Tensor]:
        """Coefficients of the atoms, the constant, and the error, with that of the additions to the constant."""
        count = f.constant.shape[1]
        u = f.coefficients.get(ATTENTION)
        if u is None:
            u = torch.zeros(self.n, count, self.quotients.n_atoms, dtype=torch.float64)
        error = (f.error + self.added * f.size) * ENLARGE
        return u, f.constant, error

    def _by_lines(self, f: Function, b: int) -> Function:
        """The functions with a block's results replaced by lines that are below them, coefficient by coefficient."""
        a, at = f.coefficients[b], self.lines[b]
        is_positive = a >= 0
        slope, shift = (
            torch.where(is_positive, below.unsqueeze(1), above.unsqueeze(1))
            for below, above in ((at.below, at.above), (at.under, at.over))
        )
        c, moved = a * slope, a * shift
        terms = a.shape[-1]
        size = f.size + moved.abs().sum(-1)
        error = f.error + gamma(terms + 4) * moved.abs().sum(-1) + terms * LEAST
        error = error + self._weighed(2 * U * c.abs() + LEAST, self.argument_sizes[b])
        rest = {s: part for s, part in f.coefficients.items() if s != b}
        before = Function(f.constant + moved.sum(-1), size, error * ENLARGE, rest)
        return self._through(before, c, b)

    def _weighed(self, off: Tensor, sizes: Tensor) -> Tensor:
        """The sum of off times sizes over the last axis: (cells, functions)."""
        return (off @ sizes.unsqueeze(-1)).squeeze(-1) * ENLARGE

    def _through(self, f: Function, c: Tensor, b: int) -> Function:
        """The functions plus c . (a block's arguments), as functions of what the arguments are made of."""
        given = self.layer.blocks[b].given
        count = c.shape[-1]
        parts = dict(f.coefficients)
        error = f.error + self._weighed(c.abs(), self.rounding[b]) + count * LEAST
        for source, part in given.parts.items():
            new = c @ part.mid
            lost = 2 * count * LEAST * self.sizes[source].sum(-1, keepdim=True)
            error = error + lost
            if source in parts:
                new = parts[source] + new
                error = error + self._weighed(2 * U * new.abs(), self.sizes[source])
            parts[source] = new
        constant = c @ given.constant.mid
        size = f.size + (c.abs() @ given.constant.mid.abs())
        return Function(f.constant + constant, size * ENLARGE, error * ENLARGE, parts)

    def _argument(self, f: Function, b: int) -> Function:
        """q = (a - mean of a) . x for the coefficients a of a norm's results, x its arguments; of RMSNorm a . x."""
        a = f.coefficients[b]
        zero = torch.zeros_like(f.constant)
        c = a if self.layer.blocks[b].function == RMS else a - a.mean(-1, keepdim=True)
        off = 2 * U * c.abs() + gamma(a.shape[-1] + 4) * a.abs().mean(-1, keepdim=True) * ENLARGE + 4 * LEAST
        error = self._weighed(off, self.argument_sizes[b])
        return self._through(Function(zero, zero, error, {}), c, b)

    def _largest(self, q: Function) -> Tensor:
        low, high = self.range(q)
        return torch.maximum(low.abs(), high.abs())

    def _plus_constant(self, f: Function, scaled: Tensor, sign: int) -> Tensor:
        """The constant and a bound on the rest, rounded down (sign -1) or up, and away by the error."""
        error = f.error + self.added * (f.size + scaled.abs()) + 4 * U * f.constant.abs() + 4 * LEAST
        return f.constant + scaled + sign * error * ENLARGE

    def _by_root(self, f: Function, b: int) -> tuple[Tensor, Tensor]:
        root, q = self.roots[b], self._argument(f, b)
        low, high = self.range(q)
        if set(f.coefficients) == {b}:
            least = torch.minimum(low * root.least, low * root.most)
            most = torch.maximum(high * root.least, high * root.most)
            return self._plus_constant(f, least, -1), self._plus_constant(f, most, 1)
        middle, extra = self._through_root(f, b, q, torch.maximum(low.abs(), high.abs()))
        low, high = self.range(middle)
        return widened(low, extra, -1), widened(high, extra, 1)

    def _through_root(self, f: Function, b: int, q: Function, largest: Tensor) -> tuple[Function, Tensor]:
        """The functions with a . y replaced by the middle of 1 / s times q, and how far they are then off.

        The coefficients of q are rounded when they are multiplied by the middle, and so is their sum with the others:
        2 U of each, times the result's size; q's own error is multiplied as well.
        """
        root = self.roots[b]
        middle = root.least / 2 + root.most / 2
        half = (root.most / 2 - root.least / 2) * ENLARGE + 8 * U * root.most
        parts = {s: part for s, part in f.coefficients.items() if s != b}
        error = f.error + (middle * q.error) * ENLARGE + LEAST
        for source, part in q.coefficients.items():
            scaled = middle.unsqueeze(-1) * part
            new = parts[source] + scaled if source in parts else scaled
            off = 2 * U * (scaled.abs() + new.abs()) + LEAST
            error = error + self._weighed(off, self.sizes[source])
            parts[source] = new
        shift = middle * q.constant
        size = f.size + shift.abs() + (middle * q.size) * ENLARGE
        found = Function(f.constant + shift, size, (error + 2 * U * shift.abs() + LEAST) * ENLARGE, parts)
        return found, (half * largest) * ENLARGE + LEAST

    def _root(self, block: Block) -> Root:
        """The ends of 1 / s, s^2 = |x - mean|^2 / d + eps: |x - mean| is within some distance of its middle's length.

        Of RMSNorm s^2 = |x|^2 / d + eps, and |x| is so.

        The atoms are within `spread` of their middle, results of other blocks within half their range; the l2 norm of
        a sum is at most the sum of the l2 norms.
        """
        given, d = block.given, block.size

        def centred(x: Tensor) -> Tensor:
            return x if block.function == RMS else x - x.mean(-2, keepdim=True)

        middle = given.constant.mid.expand(self.n, -1)
        off = self.rounding_of(block)
        distance = torch.zeros(self.n, dtype=torch.float64)
        for source, part in given.parts.items():
            if source == ATTENTION:
                u = centred(part.mid).expand(self.n, *part.mid.shape).contiguous()
                distance = distance + self.quotients.spread(u)
                middle = middle + self.quotients.middles(part.mid.expand_as(u).contiguous()).sum(0)
            else:
                low, high = self._results(source)
                middle = middle + ((low / 2 + high / 2) @ part.mid.T)
                half = (high / 2 - low / 2) * ENLARGE + LEAST
                distance = distance + (half @ centred(part.mid).abs().T).square().sum(-1).sqrt() * ENLARGE
        if block.function != RMS:
            middle = middle - middle.mean(-1, keepdim=True)
        length = middle.square().sum(-1).sqrt()
        distance = (distance + off) * ENLARGE + 2.0**-500
        near = ((length * (1 - 2.0**-40) - distance).clamp(min=0)) * (1 - 2.0**-40)
        far = (length + distance) * ENLARGE
        _, low, _ = deviation(near.square() * (1 - 2.0**-40) / d, 2 * LEAST, block.eps)
        _, _, high = deviation(far.square() * ENLARGE / d, 2 * LEAST, block.eps)
        ends = 1 / high * (1 - 4 * U), 1 / low * (1 + 4 * U)
        return Root(*(end.unsqueeze(1) for end in ends))

    def rounding_of(self, block: Block) -> Tensor:
        """How far the middle of a norm's arguments is off by rounding, in the l2 norm: (cells,)."""
        rounding, size = self._rounding(block.given)
        every = rounding + gamma(4 * block.size + 64) * (size + size.mean(-1, keepdim=True)) + LEAST
        return (every * 2).square().sum(-1).sqrt() * ENLARGE + 2.0**-500

    def _results(self, b: int) -> tuple[Tensor, Tensor]:
        """The ends of a block's results, none beyond its size: by its lines' ends, or of a norm by its arguments'."""
        return tuple(end.clamp(-self.sizes[b], self.sizes[b]) for end in self._ends(b))  # type: ignore[return-value]

    def _ends(self, b: int) -> tuple[Tensor, Tensor]:
        block = self.layer.blocks[b]
        if block.function in NORMS:
            identity = torch.eye(block.size, dtype=torch.float64).expand(self.n, -1, -1).contiguous()
            zero = torch.zeros(self.n, block.size, dtype=torch.float64)
            return self._by_root(Function(zero, zero, zero, {b: identity}), b)
        low, high = self.ends[b]
        if block.function == "relu":
            return low.clamp(min=0), high.clamp(min=0)
        at = self.lines[b]
        ends = [at.below * z for z in (low, high)]
        least, most = torch.minimum(*ends) + at.under, torch.maximum(*ends) + at.over
        slack = 8 * U * (ends[0].abs() + ends[1].abs() + at.under.abs() + at.over.abs()) + LEAST
        return least - slack, most + slack
