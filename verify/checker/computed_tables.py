"""What gated cells keep, add and read in a format: exact values, and how far off computed ones are."""

from typing import NamedTuple

from flint import arb

from verify.checker.formats import BinaryFormat
from verify.checker.gated import is_of_decays, of_file
from verify.checker.linear import of_rotation
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineParameters
from verify.checker.rounded import ComputedBalls, Rounding

FORMULA = 19  # below it torch's softplus is log(1 + e^x), and beyond 20 it is x

Table = list[ComputedBalls]  # for each token
Gates = tuple[Table, Table, Table]  # what each keeps, adds and reads


class StoredCell(NamedTuple):
    """A network's file: what its tables are, and V, b of its logits V (read h) + b; all rounded once."""

    kind: str
    rows: dict[str, list[list[float]]]
    V: list[list[float]]
    b: list[float]

    @classmethod
    def of(cls, weights: bytes, said: LineParameters, fmt: BinaryFormat) -> "StoredCell":
        rows = of_file(weights, said) if is_of_decays(weights, said) else of_rotation(weights, said)
        rows = {name: fmt.of_weights(table) for name, table in rows.items()}
        return cls(said["model"], rows, rows.pop("readout.weight"), rows.pop("readout.bias")[0])


def gates(net: StoredCell, fmt: BinaryFormat) -> Gates:
    """What tokens keep, add and read: exact values, and how far what is computed may be from them."""
    on, cell = Rounding(fmt), {name: [as_stored(row) for row in rows] for name, rows in net.rows.items()}

    def exp(x: ComputedBalls) -> ComputedBalls:
        around = [(v - e).union(v + e).exp().upper() for v, e in zip(x.value, x.error, strict=True)]
        require(all(map(fmt.holds, around)), "a computed number may overflow", NOT_CHECKABLE)
        error = [(y * e + fmt.of_values(y)).upper() for y, e in zip(around, x.error, strict=True)]
        return on.checked([v.exp() for v in x.value], error)

    def faded(x: ComputedBalls) -> ComputedBalls:
        return exp(ComputedBalls([-v for v in x.value], x.error))

    def product(x: ComputedBalls, y: ComputedBalls) -> ComputedBalls:
        found, sizes = on.times(x, y), zip(x.sizes(), y.sizes(), strict=True)
        error = [arb(0) if a * b == 0 else e for e, (a, b) in zip(found.error, sizes, strict=True)]
        return ComputedBalls(found.value, error)

    if net.kind == "s4":
        return cell["a"] * len(cell["u"]), cell["u"], cell["c"] * len(cell["u"])
    if net.kind == "rwkv":
        pairs = zip(cell["k"], cell["v"], strict=True)
        return [faded(exp(w)) for w in cell["w"]], [product(k, v) for k, v in pairs], cell["r"]
    rate, steps = exp(cell["A"][0]), [_softplus(on, x) for x in cell["delta"]]
    added = [product(s, x) for s, x in zip(steps, cell["B"], strict=True)]
    return [faded(product(s, rate)) for s in steps], added, cell["C"]


def as_stored(row: list[float]) -> ComputedBalls:
    return ComputedBalls([arb(x) for x in row], [arb(0)] * len(row))


def _softplus(on: Rounding, x: ComputedBalls) -> ComputedBalls:
    """Of stored numbers. Where x itself may be taken, that is off by log(1 + e^-x)."""
    found = on.function(x, lambda v: v.exp().log1p(), lambda y: arb(1))
    taken = [(-v).exp().log1p() if not v < FORMULA else arb(0) for v in x.value]
    return on.checked(found.value, [(e + y).upper() for e, y in zip(found.error, taken, strict=True)])
