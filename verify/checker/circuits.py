"""Certificates about circuits and regular languages: every gate, and the induction over them (docs/checker.md)."""

from flint import arb, ctx

from verify.checker.any_order import READING, contract, reading_of
from verify.checker.chains import Balls, Chain, ChainLayer, Column, H, N, Row, S, StepArithmetic
from verify.checker.computed_steps import ComputedSteps
from verify.checker.constant_bits import LeftToRight
from verify.checker.formats import format_of
from verify.checker.languages import check_language, spelled
from verify.checker.netlists import Gates
from verify.checker.reading import (
    NOT_CHECKABLE,
    UNREADABLE,
    WORDS,
    Rows,
    read_certificate,
    read_metadata,
    read_tiles,
    require,
    rows_of,
    whole_numbers,
)
from verify.checker.records import ChainCertificate
from verify.checker.statement import certificate_of, check_counts, compare, verdict_of
from verify.checker.table import IN_DTYPE, WRONG_STEP, walk
from verify.checker.wrong_steps import refute

MOST_POSITIONS, MOST_BITS = 2048, 12
SHOWN = 0.9  # of a margin in a dtype: the checker's own bounds may be a little wider
G = 3  # the coordinate that says the next token
CONTRACT = (
    "; the partial results of one sum are in at most three formats",
    (),
    "",
    ", and results below the smallest normal number lie between 0 and twice the exact value",
)
NEXT, RIGHT = (
    "the next token is 1 where coordinate g exceeds 1/2",
    "right means: every token of the chain of thought is ",
)
REAL = ["the weights are the stored ones, in real arithmetic, with a softmax that is never 0", NEXT, RIGHT]
CONSTANT = [
    "the weights are the stored ones, rounded once to s bits",
    "constant-bit arithmetic: s integer and s fractional bits, rounded after every operation, ties to the smaller "
    "magnitude, saturating at B_s; sums left to right, the bias last",
    f"{NEXT}; a softmax 0/0 has no token, nor has any later step",
    RIGHT,
]
OF_LANGUAGE = "the language is that of the automaton (automata-lib's for a regular expression)"


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    is_language = read_certificate(certificate).get("task") == "language"
    c = certificate_of("language" if is_language else "circuit", weights, certificate, ChainCertificate)
    verdict, fmt = reading_of(c) if c.get("reading") == READING else (verdict_of(c), None)
    is_wrong, is_known = verdict == "REFUTED", c.get("reading") in ("real", "bit-exact", READING)
    require(is_known and c.get("method") == "certified", "runs are not checked", NOT_CHECKABLE)
    require(isinstance(c.get("program"), dict), "program: was not kept", NOT_CHECKABLE)
    trusted = walk(c, c["task"] + WRONG_STEP * is_wrong + IN_DTYPE * (fmt is not None))
    p, program = c["parameters"], c["program"]
    is_real, (W, sizes) = c["reading"] != "bit-exact", _read(weights)
    s, n, T, k, d = (p[name] for name in ("s", "n", "T", "k", "d"))
    compare(p, {"n": sizes["n"], "T": sizes["T"], "k": (n + T - 1).bit_length(), "d": 3 * k + 6})
    compare(p, {"s": sizes["s"]} if is_real else {"precision": f"s{s}"})
    require(n > 0 and n + T - 1 <= MOST_POSITIONS and 0 < s <= MOST_BITS, "sizes: are not checked", NOT_CHECKABLE)
    of_format = [*contract(p, *CONTRACT), NEXT, RIGHT] if fmt else None
    said = [x + "its gate's value" * (x == RIGHT) for x in of_format or (REAL if is_real else CONSTANT)]
    compare(c, {"assumptions": said + [OF_LANGUAGE] * is_language})
    circuit = Gates(program, n, T)
    compare(c, {"statistics": circuit.statistics()})
    strings = check_language(circuit, program["automaton"], p, c) if is_language else 1 << max(1, circuit.inputs)
    compare(c, {"inputs_covered": "1" if is_wrong else str(strings)})
    with ctx.workprec(128):
        if fmt:
            W = {name: [[*map(fmt.nearest, row)] for row in rows] for name, rows in W.items()}
            inner = None if fmt.factors else format_of(p.get("accumulate") or p["precision"])
            _decide(_chain(ComputedSteps(fmt, inner or fmt), W, n), circuit, n, c, strings)
        elif is_real:
            _decide(_chain(Balls(), W, n), circuit, n, c, strings)
        else:
            _decide(_chain(LeftToRight(s), W, n), circuit, n, c, strings)
    return verdict, trusted


def _decide(chain: Chain[N, H, S], circuit: Gates, n: int, c: ChainCertificate, strings: int) -> None:
    """Shows every step, or that one is wrong."""
    if c["verdict"] == "REFUTED":
        if c["task"] == "language":
            compare(c["counterexample"], {"string": spelled(c["counterexample"]["input"], c["parameters"])})
        check_counts(c.get("counts"), strings)
        refute(chain, circuit, n, c)
    else:
        claimed = arb(c["margin"] or 0)
        require(0 <= claimed <= 0.5, "margin: must be from 0 to 1/2")
        is_computed = c["reading"] == READING
        _check_steps(chain, circuit, n, claimed * (SHOWN if is_computed else 1), c["harmless_differences"])


def _read(data: bytes) -> tuple[dict[str, Rows], dict[str, int]]:
    """The tensors' rows, and the sizes n, T and s of the header."""
    tensors, about = read_tiles(data, {})
    none = "the file's metadata name no circuit"
    require(isinstance(about, dict) and {*about} == {"weightproof.circuit"}, none, UNREADABLE)
    found = read_metadata(about, "weightproof.circuit", none)
    sizes = whole_numbers(found)
    require({*sizes} == {*found} == {"n", "T", "s"} and min(sizes.values()) >= 0, "sizes", UNREADABLE)
    n, T = sizes["n"], sizes["T"]
    k = (n + T - 1).bit_length()
    d = 3 * k + 6
    shapes = {"E": [2, d], "P": [n + T - 1, d]}
    for i in range(2):
        of = {"W_Q": [d, 2 * k], "W_K": [d, 2 * k], "W_V": [d, 1], "W_O": [1, d]}
        of |= {"W_1": [d, 2], "b_1": [2], "W_2": [2, d], "b_2": [d]}
        shapes |= {f"layers.{i}.{name}": shape for name, shape in of.items()}
    dtype, kept = tensors.get("E", ("none",))[0], {name: tensor[:2] for name, tensor in tensors.items()}
    is_right = dtype in WORDS and kept == {name: (dtype, shape) for name, shape in shapes.items()}
    require(is_right and n + T > 1, "weights: shapes do not fit, or there is one position", UNREADABLE)
    return {name: rows_of(name, *tensor) if 0 not in tensor[1] else [] for name, tensor in tensors.items()}, sizes


def _chain(at: StepArithmetic[N, H, S], W: dict[str, Rows], n: int) -> Chain[N, H, S]:
    def columns(name: str) -> list[Column[N]]:
        rows = [[at.weight(x) for x in row] for row in W[name]]
        return [[(j, w) for j, w in enumerate(column) if not w == 0] for column in zip(*rows, strict=True)]  # noqa: SIM201

    def row(name: str) -> Row[N]:
        return [at.stored(x) for x in W[name][0]]

    def layer(i: int) -> ChainLayer[N]:
        Q, K, V, O, first, second = (columns(f"layers.{i}.W_{x}") for x in "QKVO12")
        b_1, b_2 = (row(f"layers.{i}.b_{x}") for x in "12")
        return ChainLayer(Q, K, V, O, first, b_1, second, b_2)

    E, P = ([[at.stored(x) for x in line] for line in W[name]] for name in "EP")
    return Chain(at, E, P, [layer(i) for i in range(2)], n, G)


def _check_steps(chain: Chain[N, H, S], circuit: Gates, n: int, least: arb, differing: int) -> None:
    """Each step writes its gate's value, whatever bits the tokens are that it looks at; g is so far from 1/2."""
    half, left_open = arb(0.5), ""
    for step, read in enumerate(circuit.steps):
        for tokens, g in chain.answers(n - 1 + step):
            is_seen = all(node in tokens for node in read)
            due = is_seen and (1 - tokens[read[0]] if len(read) == 1 else tokens[read[0]] & tokens[read[-1]])
            is_right = g - half >= least and g > half if due else half - g >= least
            if is_seen and is_right:
                continue
            is_behind = not is_seen or (g - half < least or g <= half if due else half - g < least)
            said = f"margin: step {step + 1} is not shown to write {due} by it"
            require(bool(differing) or not is_behind, said)
            if not differing:
                left_open = left_open or said
                continue
            require(is_seen, f"step {step + 1}: does not look at what its gate reads", NOT_CHECKABLE)
            require(not circuit.reaches(tokens), f"step {step + 1}: an input brings what differs there")
    require(not left_open, left_open, NOT_CHECKABLE)
