"""Certificates about addition modulo P: every pair again, in fractions or in balls (docs/checker.md)."""

from collections.abc import Callable, Sequence
from functools import cached_property

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker import grokking
from verify.checker.adder import Adder, M, N, how, in_dtype, least_gap, neurons, plus, read_adder, rounded
from verify.checker.any_order import HALF, opened, still_due
from verify.checker.forwards import Head
from verify.checker.layout_program import is_of_layout
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import PairsCertificate
from verify.checker.replay import replay_of
from verify.checker.reruns import check_answers
from verify.checker.rounded_pairs import RoundedPairs
from verify.checker.roundoff import Roundoff
from verify.checker.statement import certificate_of, compare, is_close

TokenTable = tuple[list[N], list[list[N]]]  # what each weighs, and what it writes
BITS = (128, 1024, 8192)
MOST_PAIRS = 1 << 22
MOST_LISTED = 1000  # wrong pairs
RIGHT = "right means: the class (a + b) mod P has strictly the largest logit"


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    if is_of_layout(weights):
        return grokking.check(weights, certificate)
    c = certificate_of("modular", weights, certificate, PairsCertificate)
    (verdict, fmt, trusted), model = opened("modular", c), read_adder(weights)
    P = model.b_out.ncols()
    sizes = (model.E.nrows(), model.positions.nrows(), len(model.layers))
    require(sizes == (P + 1, 3, 1) and P > 1, "weights: no model of P + 1 tokens, three positions and one layer")
    require(P * P <= MOST_PAIRS, f"more than {MOST_PAIRS} pairs are not decided again", NOT_CHECKABLE)
    compare(c["parameters"], {"P": P, **model.sizes, "neurons": model.sizes["p"]})
    skip = "x + " * model.skip
    formula = f"tokens a b =, read at =: x = E[token] + position; x = {skip}sum of heads' softmax(q k) v W_O; "
    formula += f"x = {skip}ReLU(x W_1 + b_1) W_2; logits = x W_out + b_out; {how(fmt)}"
    compare(c, {"assumptions": [formula, RIGHT]})
    if fmt and verdict == "REFUTED":
        case = c["counterexample"]
        require(_is_pair(case["input"], P), f"counterexample: {case['input']} is no pair")
        right = sum(case["input"]) % P
        on = replay_of(case, c["parameters"], fmt)
        said = check_answers(on, c["margin"], rounded(model, Roundoff(fmt.of_one_run)), [*case["input"], P], [right])
        compare(case, {"expected": right, "predicted": said[0]})
        return verdict, trusted
    margin = c["margin"] or 0.0
    model, off = in_dtype(model, fmt)
    wrong = list[list[int]]()
    if fmt and 2 * off > margin:
        RoundedPairs(model, fmt).prove(margin)
        trusted = [*trusted, HALF]
    else:
        wrong = Pairs(model).wrong(still_due(margin, off) if verdict == "PROVED" else 0.0)
    counts = {"right": str(P * P - len(wrong)), "wrong": str(len(wrong))}
    if verdict == "PROVED":
        require(margin > 0 and not wrong, f"margin: is {c['margin']}, and {wrong[:1]} are wrong")
        compare(c, {"inputs_covered": str(P * P), **({"counts": counts} if fmt is None else {})})
        compare(c["tightest"], {"margin": margin})
        require(_is_pair(c["tightest"]["input"], P), "tightest: is no pair")
    else:
        compare(c, {"counts": counts} if "counts" in c else {})
        _refute(model, P, c, wrong)
    return verdict, trusted


def _is_pair(x: Sequence[int], P: int) -> bool:
    return len(x) == 2 and max(x) < P


class Pairs:
    """The least margin of every pair: in fractions where attention is uniform, else in balls."""

    def __init__(self, model: Adder) -> None:
        self.model, self.P = model, model.b_out.ncols()
        self.own = fmpq_mat([model.embedded(self.P, 2)])
        numbers = [[model.embedded(t, i) for t in range(self.P)] for i in range(2)]
        self.places = [*map(fmpq_mat, numbers), self.own]
        self.is_exact = all(len({*row}) == 1 for row in map(self._scores, model.layers[0].heads))
        self.balls: dict[int, list[list[TokenTable[arb]]]] = {}
        self.decided: dict[object, fmpq] = {}

    def _scores(self, head: Head) -> list[fmpq]:
        """What "=" gives a first number, a second one, and itself."""
        query = head[1] * (self.own * head[0]).transpose()
        return [score for x in self.places for score in (x * query).entries()]

    def _tables(self, weigh: Callable[[fmpq], N], number: Callable[[fmpq], N]) -> list[list[TokenTable[N]]]:
        """For each head and place what each token weighs, and what it writes."""
        out = list[list[TokenTable[N]]]()
        for head in self.model.layers[0].heads:
            scores, W = self._scores(head), head[2] * head[3]
            rows, top, tables = [(x * W).tolist() for x in self.places], max(scores), list[TokenTable[N]]()
            for i, x in enumerate(rows):
                weights = [weigh(s - top) for s in scores[i * self.P :][: len(x)]]
                tables.append((weights, [[number(y) for y in row] for row in x]))
            out.append(tables)
        return out

    @cached_property
    def _exact(self) -> list[list[TokenTable[fmpq]]]:
        """A softmax is the same for scores that are all less by the top one: by 0."""
        return self._tables(lambda _: fmpq(1), fmpq)

    def row(self, a: int, bits: int) -> Sequence[arb | fmpq]:
        """The least margins of all pairs (a, b)."""
        start = (self.own if self.model.skip else 0 * self.own).entries()
        if not self.is_exact:
            if bits not in self.balls:
                self.balls[bits] = self._tables(lambda s: arb(s).exp(), arb)
            found = self._read(arb_mat(_streams([*map(arb, start)], self.balls[bits], a, self.P)))
            return [least_gap(y, (a + b) % self.P) for b, y in enumerate(found.tolist())]
        streams = _streams(start, self._exact, a, self.P)
        keys = [(tuple((int(y.p), int(y.q)) for y in x), (a + b) % self.P) for b, x in enumerate(streams)]
        for key, x in zip(keys, streams, strict=True):  # equal streams are decided once
            if key not in self.decided:
                self.decided[key] = least_gap(self._read(fmpq_mat([x])).tolist()[0], key[1])
        return [self.decided[key] for key in keys]

    def _read(self, x: M) -> M:
        read = neurons(self.model.layers[0], x, self.model.skip) * type(x)(self.model.W_out)
        return plus(read, self.model.b_out)

    def wrong(self, margin: float) -> list[list[int]]:
        """All wrong pairs, in order. Raises: Refusal where one is right by less than the margin, or stays open."""
        found, least = list[list[int]](), fmpq(*margin.as_integer_ratio())
        for a in range(self.P):
            gaps: Sequence[arb | fmpq] = []
            for bits in BITS[:1] if self.is_exact else BITS:
                with ctx.workprec(bits):
                    gaps = self.row(a, bits)
                    if all(gap <= 0 or (gap > 0 and gap >= least) for gap in gaps):
                        break
            for b, gap in enumerate(gaps):
                is_wrong = bool(gap <= 0)
                require(is_wrong or not gap < least, f"margin: {a} + {b} is right by less")
                is_shown = is_wrong or bool(gap > 0 and gap >= least)
                require(is_shown, f"{a} + {b}: whether it is right does not show", NOT_CHECKABLE)
                found += [[a, b]] * is_wrong
        return found


def _streams(start: list[N], tables: list[list[TokenTable[N]]], a: int, P: int) -> list[list[N]]:
    """Behind attention at "=", after each pair (a, b)."""
    found = []
    for b in range(P):
        x = start
        for (w0, v0), (w1, v1), (w2, v2) in tables:
            total = w0[a] + w1[b] + w2[0]
            p, q, r = w0[a] / total, w1[b] / total, w2[0] / total
            x = [s + p * y0 + q * y1 + r * y2 for s, y0, y1, y2 in zip(x, v0[a], v1[b], v2[0], strict=True)]
        found.append(x)
    return found


def _refute(model: Adder, P: int, c: PairsCertificate, wrong: list[list[int]]) -> None:
    """One wrong pair, and what is said of all."""
    case, listed = c["counterexample"], c["wrong_inputs"]
    require(_is_pair(case["input"], P) and case["input"] in wrong, f"counterexample: {case['input']} is no wrong pair")
    require(not case["is_smallest"] or case["input"] == wrong[0], "counterexample: is not the smallest")
    right = sum(case["input"]) % P
    is_listed = listed == sorted(listed) and all(pair in wrong for pair in listed) and len(listed) > 0
    is_whole = len(listed) == len(wrong) or MOST_LISTED <= len(listed) < len(wrong)
    is_once = len({*map(tuple, listed)}) == len(listed)
    require(is_listed and is_once and (is_whole or "counts" not in c), "wrong_inputs: are not all wrong pairs")
    compare(case, {"expected": right})
    for bits in BITS:
        with ctx.workprec(bits):
            tokens = [*case["input"], P]
            row = model.logits(tokens).tolist()[2]
            gap, said = least_gap(row, right), case["predicted"]
            is_beaten = said is not None and (said >= P or any(y > row[said] for y in row))
            require(not is_beaten, f"counterexample: the class {said} is not the largest")
            if is_close(c["margin"], gap):
                return
    raise Refusal(f"margin: is {c['margin']}, of {gap}, which does not show", NOT_CHECKABLE)
