"""Steps of a chain of thought that are wrong: one input is run, in balls or in constant bits."""

from flint import arb

from verify.checker.chains import Chain, H, N, S
from verify.checker.constant_bits import NoToken
from verify.checker.netlists import Gates
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import ChainCertificate
from verify.checker.statement import compare


def refute(chain: Chain[N, H, S], circuit: Gates, n: int, c: ChainCertificate) -> None:
    """One step of one input, whose g is on the wrong side of 1/2 in all of its ball, or which has no token."""
    case, step, half = c["counterexample"], c["counterexample"]["step"], arb(0.5)
    is_input = len(case["input"]) == n and {*case["input"]} <= {*"01"} and 1 <= step <= len(circuit.steps)
    require(is_input, f"counterexample: must have {n} bits and a step")
    tokens = [*map(int, case["input"])]
    for read in circuit.steps[:step]:
        tokens.append(1 - tokens[read[0]] if len(read) == 1 else tokens[read[0]] & tokens[read[-1]])
    due, of = tokens.pop(), circuit.steps[step - 1]
    kind = "not" if len(of) == 1 else "and"
    compare(case, {"expected": due, "kind": kind})
    try:
        g = chain.run(tokens)
    except NoToken:
        compare(case, {"computed": None, "predicted": None})
        compare(c, {"margin": None})
        return
    ahead = g - half if due else half - g
    require(not (ahead > 0), f"counterexample: step {step} is right")
    is_wrong = bool(ahead <= 0 if due else ahead < 0)
    require(is_wrong, "counterexample: whether it is wrong does not show", NOT_CHECKABLE)
    compare(case, {"computed": 1 - due, "predicted": 1 - due})
    margin = c["margin"]
    require(margin is not None, "margin: is not said", NOT_CHECKABLE)
    assert margin is not None
    digits = 0 if c["reading"] == "bit-exact" else arb(2) ** -29 * (1 + abs(ahead))  # nine of them
    is_margin = margin <= 0 and not abs(ahead - arb(margin)) > digits
    require(is_margin, f"margin: is {margin}, must be {ahead}")
