"""Certificates about addition digit by digit: the induction over columns again, by linear forms (docs/checker.md)."""

from flint import ctx, fmpq

from verify.checker.adder import Adder, InSteps, answer_of, how, in_dtype, least_gap, read_adder, rounded
from verify.checker.any_order import HALF, half_of, opened, still_due
from verify.checker.ball_rows import least_of
from verify.checker.carries import prove_two_layers
from verify.checker.columns import BITS, DigitColumn
from verify.checker.formats import BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import SumsCertificate
from verify.checker.replay import replay_of
from verify.checker.reruns import check_answers
from verify.checker.roundoff import Roundoff
from verify.checker.statement import certificate_of, check_counts, claimed_margin, compare, is_close

PRECISIONS = (128, 1024, 8192)
MOST_TERMS = 1 << 28
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
ASSUMED = [
    "x = E[token] + position; in each layer x += sum of heads' softmax(q k) v W_O, causal, then x += ReLU(x W_1 + b_1) "
    "W_2; logits = x W_out + b_out; ",
    "an answer is right if each of its n + 1 digits has strictly the largest logit, the digits before it given",
]


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("addition", weights, certificate, SumsCertificate)
    (verdict, fmt, trusted), model, p = opened("addition", c), read_adder(weights), c["parameters"]
    n, B, sizes = p["digits"], p["base"], (model.E.nrows(), model.positions.nrows(), model.b_out.ncols())
    require(n > 0 and B > 1 and sizes == (B + 2, 3 * n + 2, B), "parameters: the file is of other digits, or base")
    require(len(DIGITS) >= B and model.skip, "a larger base, or no skip connection, is not checked", NOT_CHECKABLE)
    compare(p, model.sizes)
    compare(c, {"assumptions": [ASSUMED[0] + how(fmt), ASSUMED[1]]})
    if verdict == "REFUTED":
        _refute(model, n, B, c, fmt)
        return verdict, trusted
    is_known = len(model.layers) <= 2 and (n * B * B) ** 2 <= MOST_TERMS
    require(is_known, "more than two layers, or so many digits, are not checked", NOT_CHECKABLE)
    compare(c | c["tightest"], {"inputs_covered": str(B ** (2 * n)), "margin": c["margin"]})
    margin, is_wider = claimed_margin(c), p.get("accumulate") is not None
    with ctx.workprec(BITS + 64):
        if len(model.layers) == 2:
            prove_two_layers(InSteps(model, fmt, is_wider), n, B, margin)
            return verdict, trusted + [HALF] * (fmt is not None)
        try:
            rounded_once, off = in_dtype(model, fmt)
            steps, least, left = InSteps(rounded_once, None), still_due(margin, off), trusted
        except Refusal as refusal:
            if fmt is None or refusal.exit_code != NOT_CHECKABLE:
                raise
            steps, least, left = InSteps(model, fmt, is_wider), half_of(margin), [*trusted, HALF]
        for i in range(n + 1):
            DigitColumn(steps, n, B, i).prove(fmpq(*least.as_integer_ratio()) * fmpq(2) ** BITS)
    return verdict, left


def _number(text: str, n: int, B: int) -> list[int]:
    """The digits of a number as a prompt has them, the leading one first."""
    digits = [DIGITS.find(x) for x in text]
    require(len(digits) == n and all(0 <= d < B for d in digits), f"counterexample: {text[:80]!r} has no {n} digits")
    return digits


def _refute(model: Adder, n: int, B: int, c: SumsCertificate, fmt: BinaryFormat | None) -> None:
    """One pair of numbers decides: each digit of its answer, the right ones before it given."""
    case = c["counterexample"]
    a, plus, rest = case["input"].partition("+")
    first, second = _number(a, n, B), _number(rest[:-1], n, B)
    require(plus == "+" and rest[-1:] == "=", "counterexample: is no prompt")
    answer = answer_of(first, second, B)
    compare(case, {"expected": "".join(DIGITS[d] for d in answer)})
    said = case["predicted"]
    tokens = [*first, B, *second, B + 1, *answer[:-1]]
    if fmt:
        found = check_answers(
            replay_of(case, c["parameters"], fmt), c["margin"], rounded(model, Roundoff(fmt.of_one_run)), tokens, answer
        )
        compare(case, {"predicted": "".join(DIGITS[d] for d in found)})
        return
    require(len(said) == n + 1 and {*said} <= {*DIGITS[:B], "?"}, "predicted: are no digits")
    check_counts(c.get("counts"), B ** (2 * n))
    for bits in PRECISIONS:
        with ctx.workprec(bits):
            rows = model.logits(tokens).tolist()[2 * n + 1 :]
            for row, name in zip(rows, said, strict=True):
                is_beaten = name != "?" and any(y > row[DIGITS.find(name)] for y in row)
                require(not is_beaten, f"predicted: {name} is not the largest")
            gap = least_of(map(least_gap, rows, answer))
            require(not gap > 0, "counterexample: is answered rightly")
            if gap <= 0 and is_close(c["margin"], gap):
                return
    raise Refusal(f"margin: is {c['margin']}, of {gap}, which does not show", NOT_CHECKABLE)
