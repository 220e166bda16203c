"""Selective counting on all strings over K types, re-checked from the stored numbers (docs/checker.md).

The units of type i stand together, and whatever the units of other types are is allowed at every step, so that a proof
for one token, one type and one count at a time is one for all strings of all lengths, by induction.
"""

from flint import arb, ctx

from verify.checker import held
from verify.checker.integer_rings import rings
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import positive_margin
from verify.checker.stored_selective import StoredSelective, stored
from verify.checker.thermometers import StoredThermometer

BITS = 128


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof for all strings, or a wrong string."""
    net = stored(weights, c, said)
    if net.kind == "lstm":
        require(net.fmt is None and net.m is None, "an LSTM is checked in real arithmetic", NOT_CHECKABLE)
        with ctx.workprec(held.BITS):
            _held(net).decide(c)
        return
    with ctx.workprec(BITS):
        margin = positive_margin(c)
        length = c["length"]
        covered = "infinite" if length == "all" else held.strings(net.K, length)
        require(c.get("inputs_covered") == covered, f"inputs_covered: must be {covered}")
        found = c["invariant_found"]
        if net.activation == "relu":
            rings(net, margin, found, length)
        else:
            require(net.m is None, "no proof is known for this network", NOT_CHECKABLE)
            StoredThermometer(net, found).check(margin)


def _held(net: StoredSelective) -> held.HeldUnits:
    """LSTM units without recurrent weights, one for each type: c' = f(x) c + i(x) g(x), shown as o(x) tanh c."""
    K = net.K
    require(len(net.W_h[0]) == K, "the LSTM has not one unit for each type", NOT_CHECKABLE)
    require(not any(w for row in net.W_h for w in row), "the LSTM has recurrent weights", NOT_CHECKABLE)

    def gate(k: int) -> list[list[arb]]:
        rows = range(k * K, (k + 1) * K)
        return [[arb(net.b[r][0]) + arb(net.b[r][1]) + arb(net.W_x[r][x]) for x in range(K)] for r in rows]

    i, keep, show = ([[1 / (1 + (-x).exp()) for x in row] for row in gate(k)] for k in (0, 1, 3))
    g = [[x.tanh() for x in row] for row in gate(2)]
    add = [[i[k][x] * g[k][x] for x in range(K)] for k in range(K)]
    return held.HeldUnits(net.V, net.c, net.C, add, keep, show, arb.tanh)
