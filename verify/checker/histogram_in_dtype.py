"""Certificates about histogram models in a dtype: the vertices of real arithmetic, less the roundings' bound."""

from collections.abc import Sequence

from flint import arb, ctx

from verify.checker import replay
from verify.checker.any_order import HALF, contract, half_of, opened, still_due
from verify.checker.computed_counts import shown_by_parts
from verify.checker.formats import BinaryFormat, format_of
from verify.checker.forwards import Numbers, of_counts, rounded_once
from verify.checker.mathematics import BITS, Model
from verify.checker.reading import NOT_CHECKABLE, Refusal, Weights, require
from verify.checker.records import CountsCertificate
from verify.checker.replayed_margins import check_margin
from verify.checker.reruns import of_counts as of_counts_again
from verify.checker.rounded_counts import rounded_model
from verify.checker.roundoff import Roundoff
from verify.checker.splits import decide
from verify.checker.statement import compare

ARGUMENTS = {"PROVED": "a lower bound on every computed margin", "REFUTED": "a run in the dtype"}
RIGHT = "right means: the right class has strictly the largest computed logit"


def check(w: Weights, c: CountsCertificate, claims: Sequence[str]) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    require(len(w.matrices["b_2"][0]) > 1, "a model of one class is not checked in a dtype", NOT_CHECKABLE)
    verdict, fmt, trusted = opened("histogram", c)
    assert fmt is not None
    p = w.repeated["parameters"]
    said, T, L = c["parameters"], p["T"], p["L"]
    inner = said.get("accumulate")
    scores = [f"scores divided by sqrt(d), or times its reciprocal, each rounded to {inner} or not at all"]
    compare(c, {
        "task": "histogram",
        **w.repeated,
        "claim": w.repeated["claim"] if w.repeated["claim"] in claims else None,
        "parameters": {**p, "precision": said["precision"], "accumulate": inner},
        "assumptions": [*contract(said, more=scores), RIGHT],
        **({"argument": ARGUMENTS[verdict]} if "argument" in c else {}),
        "inputs_covered": "1" if verdict == "REFUTED" else str(T**L),
    })  # fmt: skip
    if verdict == "REFUTED":
        _refute(w, c, fmt)
        return verdict, trusted
    said_margins = c["margin_per_count"] or []
    margins = [m for m in said_margins if type(m) is float]
    is_list = len(said_margins) == len(margins) == L and min(margins) > 0
    require(is_list, f"margin_per_count: must be {L} numbers above zero")
    compare(c, {"margin": min(margins)})
    w, exact = rounded_once(w, fmt)
    try:
        off = of_counts(Roundoff(fmt), exact, L, p["model"].endswith("+sftm"), arb(p["d"]).sqrt())
        model = Model(w, [still_due(m, off) for m in margins])
    except Refusal as refusal:
        return verdict, trusted + _show_half(fmt, format_of(inner) or fmt, w, exact, margins, c.get("tree"), refusal)
    _decide(model, c.get("tree"))
    return verdict, trusted


def _show_half(
    fmt: BinaryFormat,
    inner: BinaryFormat,
    w: Weights,
    W: Numbers,
    margins: Sequence[float],
    tree: object,
    refusal: Refusal,
) -> list[str]:
    """Slot by slot, else by parts of the inputs, where no tree says which. Returns what is left on trust."""
    try:
        with ctx.workprec(BITS + 64):
            root = arb(w.repeated["parameters"]["d"]).sqrt()
            _decide(rounded_model(fmt, w, W, [half_of(m) for m in margins], root), tree)
        return [HALF]
    except Refusal as other:
        refusal = other
    if refusal.exit_code != NOT_CHECKABLE or fmt.factors is not None or tree is not None:
        raise refusal
    return shown_by_parts(fmt, inner, w, W, margins)


def _decide(model: Model, tree: object) -> None:
    require(decide(model, tree) == (0, 0), "margin: is not shown on all inputs")


def _refute(w: Weights, c: CountsCertificate, fmt: BinaryFormat) -> None:
    """One input, run in the evaluation that is named."""
    p, case, first = w.repeated["parameters"], c["counterexample"], w.first_count or 0
    tokens, position = case["tokens"], case["position"]
    is_input = len(tokens) == p["L"] and max(tokens) < p["T"] and position < p["L"]
    require(is_input, f"counterexample: must have {p['L']} tokens below {p['T']} and one of their positions")
    expected, said, on = tokens.count(tokens[position]), case["predicted"], replay.replay_of(case, c["parameters"], fmt)
    W, is_softmax = rounded_once(w, fmt.of_one_run)[0].matrices, p["model"].endswith("+sftm")
    logits = of_counts_again(on, W, tokens, position, p["d"], is_softmax)
    found = on.margin(logits, expected - first, None if said is None else said - first)
    check_margin(c["margin"], found, is_softmax)
    compare(case, {"input": tokens, "expected": expected, "is_tie": found == 0})
