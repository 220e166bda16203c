"""One layer over one-hot tokens that counts selectively, exactly as the file stores it (docs/checker.md)."""

from dataclasses import dataclass

from verify.checker import formats
from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, read_tensors, require, tables_of
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import GATES
from verify.checker.statement import compare

MOST_UNITS, MOST_STATES = 1024, 10_000
TENSORS = ("cell.weight_ih_l0", "cell.weight_hh_l0", "cell.bias_ih_l0", "cell.bias_hh_l0", "readout.weight",
           "readout.bias")  # fmt: skip
Rows = list[list[float]]


@dataclass(frozen=True)
class StoredSelective:
    """One layer over one-hot tokens and its readout, exactly; K types, counts up to C or modulo m."""

    kind: str
    activation: str
    W_x: Rows
    W_h: Rows
    b: list[tuple[float, float]]
    V: Rows
    c: list[float]
    K: int
    C: int
    m: int | None
    fmt: BinaryFormat | None


def stored(data: bytes, c: LineCertificate, said: LineParameters) -> StoredSelective:
    tensors, about = read_tensors(data)
    kind, activation = about.get("model"), about.get("activation")
    require(kind in ("rnn", "lstm") and activation in ("tanh", "relu"), f"the metadata name no network: {about}")
    require({*tensors} == {*TENSORS}, "the file must hold one layer on one-hot tokens", NOT_CHECKABLE)
    tables = tables_of(tensors, ())
    rows = [tables[name] for name in TENSORS]
    dtype, H = WORDS[tensors["readout.weight"][0]][0], len(rows[4][0])
    shape: dict[str, object] = {"model": kind, "units": H, "layers": 1, "dtype": dtype}
    shape |= {"activation": activation} if kind == "rnn" else {}
    compare(said, shape)
    K, C, m = said.get("types"), said.get("max_count"), said.get("modulus")
    require(type(K) is int and K > 1 and type(C) is int and C >= 1, "parameters: no number of types or counts")
    is_modular = said.get("task") == "selective-modular"
    require(type(m) is int and m >= 2 if is_modular else m is None, f"modulus: {m!r} in {said.get('task')!r}")
    fmt = None if c.get("reading") == "real" else formats.named(said)
    W_x, W_h, b_x, b_h, V, b = rows if fmt is None else [fmt.of_weights(x) for x in rows]
    n = GATES[str(kind)] * H
    sizes = [len(W_x), len(W_h), len(b_x[0]), len(b_h[0])] == [n] * 4 and len(W_x[0]) == K and len(W_h[0]) == H
    require(sizes and len(V) == len(b[0]) == (m or C + 1), "shapes do not fit the task", UNREADABLE)  # type: ignore
    require(H <= MOST_UNITS, f"{H} units are too many to check", NOT_CHECKABLE)
    both = list(zip(b_x[0], b_h[0], strict=True))
    return StoredSelective(str(kind), str(activation), W_x, W_h, both, V, b[0], int(str(K)), int(str(C)), m, fmt)
