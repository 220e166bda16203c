"""Compares every field of a certificate with what the weights beside it say."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from itertools import islice
from typing import Any

from flint import fmpz

from verify.checker.mathematics import Model
from verify.checker.reading import NOT_CHECKABLE, Refusal, Weights, read_json, read_weights

# The propositions about these models; tests/test_checker.py compares with the registry.
CLAIMS = [None, "A-4.1", "A-4.1alt", "A-4.2", "A-4.3", "A-4.4", "A-4.5", "A-B.1", "A-rem"]
CLAIMS += ["W-1", "W-2", "W-3", "W-4", "W-8"]
EXAMINED = 16  # open cells of which inputs are run: where the weights are wrong, one of the first mostly shows it
ULPS = 4  # within which a float stands for an exact number
ASSUMPTIONS = ["the weights are the stored numbers, exactly"]
ASSUMPTIONS += ["right means: the right class has strictly the largest logit"]
FURTHER = ["verdict", "inputs_covered", "margin", "margin_exact", "margin_per_count", "tightest"]
FURTHER += ["counterexample", "error_share", "seconds", "wrong_pairs"]


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    w, c = read_weights(weights), read_json(certificate, "the certificate")
    if c.get("reading") in ("dtype, any order", "bit-exact") or c.get("method") in ("exhaustive", "sampled"):
        raise Refusal("only proofs in the reading 'real' are checked", NOT_CHECKABLE)
    _expect(c, "verdict", "PROVED", "REFUTED", "UNKNOWN")
    if c["verdict"] == "UNKNOWN":
        raise Refusal("the certificate itself says UNKNOWN, which claims nothing", NOT_CHECKABLE)
    model = w.parameters["model"]
    mixing = "A" if model.startswith("lin") else "x W_Q W_K^T x^T / sqrt(d)"
    mixing = f"softmax({mixing})" if model.endswith("+sftm") else mixing
    recomputed: dict[str, Any] = {"task": "histogram", "reading": "real", "method": "certified", "reason": None}
    recomputed |= {"claim": w.claim if w.claim in CLAIMS else None, "parameters": w.parameters}
    formula = f"x' = x + {mixing} x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, evaluated in real arithmetic"
    recomputed |= {"assumptions": [formula, *ASSUMPTIONS], "weights_sha256": w.sha256}
    for name, value in recomputed.items():
        _expect(c, name, value)
    if wrong := {"wrong_pairs", *c} ^ {*recomputed, *FURTHER}:
        raise Refusal(f"fields missing or not known: {', '.join(sorted(wrong))}")
    if type(c["seconds"]) is not float or c["seconds"] < 0:
        raise Refusal(f"seconds: {c['seconds']!r} is no duration")
    return c["verdict"], _proved(w, c) if c["verdict"] == "PROVED" else _refuted(w, c)


def _proved(w: Weights, c: dict[str, Any]) -> list[str]:
    L, margins = w.parameters["L"], c["margin_per_count"]
    _expect(c, "inputs_covered", str(fmpz(w.parameters["T"]) ** L))
    _expect(c, "counterexample", None)
    _expect(c, "error_share", *([[0.0, 0.0]] if "wrong_pairs" in c else [None]))
    _expect({"wrong_pairs": "0", **c}, "wrong_pairs", "0")
    if len(w.matrices["b_2"][0][0]) == 1:  # the only class wins, by no margin that a number could say
        _expect(c, "margin_per_count", [None] * L)
        margins = [0.0] * L
    elif not isinstance(margins, list) or len(margins) != L or not all(type(m) is float and m > 0 for m in margins):
        raise Refusal(f"margin_per_count: must be {L} numbers above zero")
    _expect(c, "margin", min(margins) or None)
    model = Model(w, margins)
    if c["tightest"] is not None or "wrong_pairs" not in c:  # only where cases were split there may be none
        _keys(c, "tightest", "margin")
        _replay(model, c["tightest"], c["tightest"]["margin"], c["margin_exact"], bound=c["margin"])
    else:
        _expect(c, "margin_exact", None)
    cells = list(islice(model.open_cells(), EXAMINED))
    for q, k in cells:
        for s in {*range(model.T)} - {q.t}:
            rest = [q.t] * (k - 1) + [s] * (L - k)
            tokens = [*rest[: q.position], q.t, *rest[q.position :]]
            _, difference, D = model.judge(tokens, q.position)
            if difference is not None and model.compare(difference, D, margins[k - 1]) < 0:
                raise Refusal(f"margin_per_count: position {q.position} of {tokens} is not right by {margins[k - 1]}")
    if cells:
        where = f"token {cells[0][0].t} with count {cells[0][1]}"
        raise Refusal(f"{where}: vertices do not decide it; proofs that split cases are not repeated", NOT_CHECKABLE)
    return ["seconds"]


def _refuted(w: Weights, c: dict[str, Any]) -> list[str]:
    L, found, model = w.parameters["L"], c["counterexample"], Model(w, [0.0])
    _expect(c, "margin_per_count", None)
    _expect(c, "tightest", None)
    _keys(c, "counterexample", "predicted", "is_tie", "module_predicts", "is_smallest")
    winners = _replay(model, found, c["margin"], c["margin_exact"])
    _expect(found, "predicted", *[count for count in winners if count != found["expected"]][:1])
    _expect(found, "is_tie", len(winners) > 1)
    _expect(found, "is_smallest", True, False)
    _expect(found, "module_predicts", *range(w.first_count, w.first_count + len(model.b_2)))
    inputs, wrong, share = fmpz(w.parameters["T"]) ** L, c.get("wrong_pairs"), c["error_share"]
    _expect(c, "inputs_covered", "1" if wrong is None else str(inputs))
    is_pair = isinstance(share, list) and [type(x) for x in share] == [float, float]
    if not is_pair or not 0 <= share[0] <= share[1] <= 1 or share[1] == 0:
        raise Refusal("error_share: must be two shares, the second above zero")
    if wrong is not None:
        _expect(c, "wrong_pairs", str(fmpz(wrong)) if re.fullmatch("[0-9]+", str(wrong)) else "a number")
        exact = Fraction(int(fmpz(wrong)), int(inputs * L))
        if any(abs(Fraction(x) - exact) > ULPS * math.ulp(x) for x in share):
            raise Refusal("error_share: does not fit wrong_pairs")
    return ["seconds", "is_smallest", "module_predicts", "wrong_pairs", "error_share"]


def _replay(model: Model, case: Any, margin: Any, exact: Any, bound: float | None = None) -> list[int]:
    """Runs an input of the certificate exactly, compares its margin, and returns the counts that win there."""
    tokens, position = case["tokens"], case["position"]
    if not isinstance(tokens, list) or [type(x) for x in [*tokens, position]] != [int] * (model.L + 1):
        raise Refusal(f"tokens and position: must be {model.L} integers and one")
    if not min(tokens) >= 0 <= position < model.L or max(tokens) >= model.T:
        raise Refusal("tokens or position: out of range")
    _expect(case, "expected", tokens.count(tokens[position]))
    winners, difference, D = model.judge(tokens, position)
    if difference is None:
        _expect({"margin": margin}, "margin", None)
    elif type(margin) is not float:
        raise Refusal(f"margin: {margin!r} is no number")
    # where exact evaluation was too long for the prover, it repeats its bound for all inputs
    elif not (margin == bound and exact is None and model.compare(difference, D, margin) >= 0):
        near = [model.compare(difference, D, margin + step * math.ulp(margin)) for step in (-ULPS, ULPS)]
        if not near[0] >= 0 >= near[1] or (margin > 0) - (margin < 0) != model.sign(difference):
            raise Refusal(f"margin: the input {tokens} does not have the margin {margin!r} at position {position}")
        _expect({"margin_exact": exact}, "margin_exact", model.exact_ratio(difference, D))
    return winners


def _keys(c: dict[str, Any], name: str, *further: str) -> None:
    if not isinstance(c[name], dict) or {*c[name]} != {"tokens", "position", "expected", *further}:
        raise Refusal(f"{name}: must consist of tokens, position, expected, {', '.join(further)}")


def _expect(found: dict[str, Any], name: str, *allowed: Any) -> None:
    """One of the allowed values, and of its very type: true is not 1, and 1 is not 1.0."""
    said, *may_be = (json.dumps(value, sort_keys=True) for value in (found.get(name), *allowed))
    if said not in may_be:
        raise Refusal(f"{name}: is {said[:80]}, must be {' or '.join(x[:80] for x in may_be[:9]) or 'something else'}")
