"""Certificates about parity models: cells of token and own count, as for histogram (docs/checker.md)."""

from fractions import Fraction

from verify.checker import replay
from verify.checker.any_order import contract, opened, still_due
from verify.checker.computed_counts import shown_by_parts
from verify.checker.formats import BinaryFormat, format_of
from verify.checker.forwards import of_counts, rounded_once
from verify.checker.mathematics import Model
from verify.checker.reading import (
    NOT_CHECKABLE,
    UNREADABLE,
    WORDS,
    Refusal,
    Weights,
    read_tensors,
    require,
    rows_of,
    whole_numbers,
)
from verify.checker.records import ModelSizes, ParityCertificate
from verify.checker.replayed_margins import check_margin
from verify.checker.reruns import of_counts as of_counts_again
from verify.checker.roundoff import Roundoff
from verify.checker.splits import decide
from verify.checker.statement import certificate_of, claimed_margin, compare, stands_for

MOST_CELLS = 1 << 20  # of a token and its own count
ASSUMED = [
    "x' = x + x W_Q W_K^T x^T x, logits = ReLU(x' W_1 + b_1) W_2 + b_2, in real arithmetic",
    "the weights are the stored numbers, exactly",
]
RIGHT = "right means: the logit of the count's parity is strictly the larger one"


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = certificate_of("parity", weights, certificate, ParityCertificate)
    (verdict, fmt, trusted), w, said = opened("parity", c), _read(weights), c["parameters"]
    named = {name: x for name, x in said.items() if fmt and name in ("precision", "accumulate")}
    assumed = [*(contract(said) if fmt else ASSUMED), RIGHT]
    compare(c, {"parameters": w.repeated["parameters"] | named, "assumptions": assumed})
    if verdict == "PROVED":
        return verdict, trusted + _prove(w, c, fmt)
    _refute(w, c, fmt)
    return verdict, trusted


def _read(data: bytes) -> Weights:
    """The model in the bytes of a safetensors file that `--save` wrote."""
    tensors, about = read_tensors(data)
    sizes = whole_numbers(about)
    is_model = {*sizes} == {*about} == {*"TLdp"} and min(sizes.values()) > 0
    require(is_model and "E" in tensors, f"the metadata name no parity model: {about}", UNREADABLE)
    T, L, d, p = (sizes[name] for name in "TLdp")
    require(T * L <= MOST_CELLS, f"more than {MOST_CELLS} cells are not decided again", NOT_CHECKABLE)
    shapes = {"E": [T, d], "W_Q": [d, d], "W_K": [d, d], "W_1": [d, p], "b_1": [p], "W_2": [p, 2], "b_2": [2]}
    dtype, found = tensors["E"][0], {name: tensor[:2] for name, tensor in tensors.items()}
    require(found == {name: (dtype, x) for name, x in shapes.items()}, f"the tensors must be {shapes}", UNREADABLE)
    parameters: ModelSizes = {"T": T, "L": L, "d": d, "p": p, "dtype": WORDS[dtype][0]}
    return Weights({"parameters": parameters}, None, {name: rows_of(name, *x) for name, x in tensors.items()})


def _prove(w: Weights, c: ParityCertificate, fmt: BinaryFormat | None) -> list[str]:
    """Every token at every own count has the margin, by the vertices of what the other tokens may be.

    Where roundings are too much for them, by parts of the inputs. Returns what is left on trust.
    """
    p, where, margin = w.repeated["parameters"], c["tightest"], claimed_margin(c)
    require(p["T"] > 1, "an alphabet of one token has no other slots to decide", NOT_CHECKABLE)
    require(where["token"] < p["T"] and 1 <= where["count"] <= p["L"], "tightest: is no token and count")
    compare(c, {"inputs_covered": str(p["T"] ** p["L"])})
    if fmt is None:
        decide(Model(w, [margin] * p["L"]), None)
        return []
    w, exact = rounded_once(w, fmt)
    try:
        decide(Model(w, [still_due(margin, of_counts(Roundoff(fmt), exact, p["L"], False))] * p["L"]), None)
        return []
    except Refusal as refusal:
        if refusal.exit_code != NOT_CHECKABLE or fmt.factors:
            raise
    return shown_by_parts(fmt, format_of(c["parameters"].get("accumulate")) or fmt, w, exact, [margin] * p["L"])


def _refute(w: Weights, c: ParityCertificate, fmt: BinaryFormat | None) -> None:
    """One input decides, in fractions, or in the evaluation that is named."""
    p, case = w.repeated["parameters"], c["counterexample"]
    tokens, position = case["input"], case["position"]
    is_input = len(tokens) == p["L"] and max(tokens) < p["T"] and position < p["L"]
    require(is_input, f"counterexample: must have {p['L']} tokens below {p['T']} and one of their positions")
    right = tokens.count(tokens[position]) % 2
    if fmt:
        on, said = replay.replay_of(case, c["parameters"], fmt), case["predicted"]
        found = on.margin(
            of_counts_again(on, rounded_once(w, fmt.of_one_run)[0].matrices, tokens, position, None, False), right, said
        )
        check_margin(c["margin"], found, False)
        compare(case, {"expected": right, "is_tie": found == 0})
        return
    winners, difference, D = Model(w, [0.0] * p["L"]).judge(tokens, position)
    exact = Fraction(difference.get(0, 0), D[0])
    require(exact <= 0, f"counterexample: {tokens} is answered rightly at position {position}")
    compare(case, {"expected": right, "predicted": 1 - right, "is_tie": exact == 0})
    assert c["margin"] is not None  # in fractions it is a number
    require(stands_for(c["margin"], exact), f"margin: is {c['margin']}, which is not near the exact one")
    compare(c, {"margin_exact": str(exact)})
