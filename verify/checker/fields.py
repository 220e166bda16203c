"""Compares every field of a certificate with what the weights beside it say."""

import hashlib
import math
from collections.abc import Mapping
from fractions import Fraction

from verify.checker import histogram_in_bits, histogram_in_dtype, splits
from verify.checker.any_order import READING
from verify.checker.constant_bits import bits_of
from verify.checker.mathematics import Model
from verify.checker.reading import (
    FAILS,
    NOT_CHECKABLE,
    Refusal,
    Weights,
    as_text,
    read_certificate,
    read_weights,
    recorded,
    require,
    whole,
)
from verify.checker.records import CountsCertificate
from verify.checker.statement import ULPS, compare, stands_for
from verify.checker.table import walk

# The propositions about these models; tests/checker/test_checker.py compares with the registry.
CLAIMS = [
    *["A-4.1", "A-4.1alt", "A-4.2", "A-4.3", "A-4.4", "A-4.5", "A-B.1", "A-C.3.2", "A-rem"],
    *[f"W-{i}" for i in (1, 2, 3, 4, 8, 13, 14, 15, 23)],
]
SEARCHED = ", with its search"
ASSUMED = ["the weights are the stored numbers, exactly", "right means: the right class has strictly the largest logit"]
ARGUMENTS = {  # by whether wrong pairs were counted; the first is written today, the same check holds for all
    False: ["vertices"],
    True: ["vertices, then multisets one by one or in regions", "vertices, then branch and bound"],
}


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    w, c = _read(weights, certificate)
    if c.get("reading") == READING:
        return histogram_in_dtype.check(w, c, CLAIMS)
    if (s := bits_of(c)) is not None:
        return histogram_in_bits.check(w, c, s, CLAIMS)
    other = c.get("reading") == "bit-exact" or c.get("method") in ("exhaustive", "sampled")
    require(not other, "runs are not checked", NOT_CHECKABLE)
    verdict, seconds, model = c.get("verdict"), c.get("seconds"), w.repeated["parameters"]["model"]
    require(verdict != "UNKNOWN", "the certificate itself says UNKNOWN, which claims nothing", NOT_CHECKABLE)
    is_header = verdict in ("PROVED", "REFUTED") and type(seconds) is float and seconds >= 0
    require(is_header, f"verdict or seconds: {verdict!r} is no verdict, or {seconds!r} no duration")
    mixing = "A" if model.startswith("lin") else "x W_Q W_K^T x^T / sqrt(d)"
    mixing = f"softmax({mixing})" if model.endswith("+sftm") else mixing
    formula = f"x' = x + {mixing} x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, evaluated in real arithmetic"
    trusted = walk(c, "histogram, proved" if verdict == "PROVED" else f"histogram, wrong{_has_tree(c) * SEARCHED}")
    expected: dict[str, object] = {"task": "histogram", "reading": "real", "method": "certified", "reason": None}
    expected |= {"assumptions": [formula, *ASSUMED], **w.repeated}
    expected["claim"] = w.repeated["claim"] if w.repeated["claim"] in CLAIMS else None
    # certificates from before this key existed hold as they are
    arguments = ARGUMENTS["wrong_pairs" in c]
    is_known = c.get("argument") in arguments
    expected |= {"argument": c["argument"] if is_known else arguments[0]} if "argument" in c else {}
    compare(c, expected)
    compare(c, _proved(w, c) if verdict == "PROVED" else _refuted(w, c))
    return str(verdict), trusted


def _read(weights: bytes, certificate: bytes) -> tuple[Weights, CountsCertificate]:
    """Both files. Weights of another task, as their certificate says, are not doubted but not checked."""
    c = read_certificate(certificate)
    try:
        return read_weights(weights), recorded(c, CountsCertificate)
    except Refusal as refusal:
        is_whole = c.get("weights_sha256") == hashlib.sha256(weights).hexdigest()
        if c.get("task") == "histogram" or not (is_whole or refusal.exit_code == FAILS):
            raise
        said = f"task: {as_text(c.get('task'))[:80]} is none whose certificates are checked"
        raise Refusal(said, NOT_CHECKABLE) from None


def _has_tree(c: CountsCertificate) -> bool:
    return "tree" in c and as_text(c["tree"]) not in map(as_text, splits.NOT_KEPT)


def _proved(w: Weights, c: CountsCertificate) -> dict[str, object]:
    L, only_class = w.repeated["parameters"]["L"], len(w.matrices["b_2"][0]) == 1
    said = [0.0] * L if only_class else c.get("margin_per_count") or []  # the only class wins by no number
    margins = [m for m in said if type(m) is float]
    is_list = len(margins) == len(said) == L
    require(is_list and (only_class or min(margins) > 0), f"margin_per_count: must be {L} numbers above zero")
    model, is_split, margin_exact, tightest = Model(w, margins), "wrong_pairs" in c, None, None
    if not is_split or c.get("tightest") is not None:  # only where cases were split there may be none
        tightest, margin_exact, _ = _replay(model, c, "tightest")
    held = splits.decide(model, c.get("tree"))
    require(held == (0, 0), f"tree: {held[0]} pairs are wrong, and {held[1]} open")
    expected: dict[str, object] = {"margin_per_count": [m or None for m in margins], "margin": min(margins) or None}
    expected |= {"tightest": tightest, "margin_exact": margin_exact, "counterexample": None}
    expected |= {"inputs_covered": str(model.inputs), "error_share": [0.0, 0.0] if is_split else None}
    return expected | ({"wrong_pairs": "0"} if is_split else {})


def _refuted(w: Weights, c: CountsCertificate) -> dict[str, object]:
    model = Model(w, [0.0] * w.repeated["parameters"]["L"])
    share, wrong = c.get("error_share") or [], c.get("wrong_pairs")
    case, exact, winners = _replay(model, c, "counterexample")
    first = w.first_count or 0
    counts = [winner + first for winner in winners]
    margin, predicted = case.pop("margin"), [count for count in counts if count != case["expected"]]
    require(bool(predicted), f"counterexample: {case['tokens']} is classified rightly")
    said = c["counterexample"].get("module_predicts")
    require(as_text(said) in [str(k + first) for k in model.classes], "module_predicts: must be a count")
    case |= {"module_predicts": said, "is_smallest": c["counterexample"].get("is_smallest") is True}
    is_pair = [type(x) for x in share] == [float, float]
    require(is_pair and 0 <= share[0] <= share[1] <= 1 and share[1] > 0, "error_share: must be two shares, not both 0")
    require(wrong is not None or share[0] < share[1], "wrong_pairs: must be said where the share is exact")
    if wrong is not None:
        require(whole(wrong, "wrong_pairs") > 0, "wrong_pairs: must be above zero")
        true_share = Fraction(whole(wrong, "wrong_pairs"), int(model.inputs) * model.L)
        require(all(stands_for(x, true_share) for x in share), "error_share: is another")
    if _has_tree(c):
        held, pairs = splits.decide(model, c["tree"]), int(model.inputs) * model.L
        ends = [Fraction(held.wrong, pairs), Fraction(held.wrong + held.open, pairs)]
        is_near = all(stands_for(x, end) for x, end in zip(share, ends, strict=True))
        require(is_near, f"error_share: the tree shows {float(ends[0])} to {float(ends[1])}")
        require(wrong == (None if held.open else str(held.wrong)), f"wrong_pairs: the tree shows {held}")
    case |= {"input": case["tokens"]} if "input" in c["counterexample"] else {}
    case |= {"predicted": predicted[0], "is_tie": len(winners) > 1}
    expected: dict[str, object] = {"counterexample": case}
    expected |= {"margin": margin, "margin_exact": exact, "margin_per_count": None, "tightest": None}
    return expected | {"inputs_covered": "1"}


def _replay(model: Model, c: Mapping[str, object], name: str) -> tuple[dict[str, object], str | None, list[int]]:
    """Runs an input of the certificate exactly: what must be said of it, its exact margin, the counts that win."""
    case = found if isinstance(found := c.get(name), dict) else {}
    tokens, position, margin = case.get("tokens", []), case.get("position", -1), case.get("margin", c.get("margin"))
    is_input = isinstance(tokens, list) and [type(x) for x in (*tokens, position)] == [int] * (model.L + 1)
    is_input = is_input and 0 <= min(tokens) <= max(tokens) < model.T and 0 <= position < model.L
    require(is_input, f"{name}: must have {model.L} tokens below {model.T} and one of their positions")
    winners, difference, D = model.judge(tokens, position)
    fields = {"tokens": tokens, "position": position, "expected": tokens.count(tokens[position]), "margin": margin}
    if len(model.classes) == 1:
        return {**fields, "margin": None}, None, winners
    require(type(margin) is float, f"margin: {margin!r} is no number")
    # where exact evaluation was too long for the prover, it repeats its bound for all inputs
    repeats = name == "tightest" and margin == c.get("margin") and c.get("margin_exact") is None
    if repeats and model.compare(difference, D, margin) >= 0:
        return fields, None, winners
    ends = [Fraction(margin) + n * Fraction(math.ulp(margin)) for n in (-ULPS, ULPS)]
    is_near = model.compare(difference, D, ends[0]) >= 0 >= model.compare(difference, D, ends[1])
    is_near = is_near and (margin > 0) - (margin < 0) == model.sign(difference)
    require(is_near, f"margin: {tokens} does not have the margin {margin!r} at position {position}")
    return fields, model.exact_ratio(difference, D), winners
