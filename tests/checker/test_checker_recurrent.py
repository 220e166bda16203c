"""The checker on recurrent certificates of every kind: honest ones hold, and whatever is changed in them is refused."""

import copy
import hashlib
import json
import subprocess
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
import safetensors.torch
import torch
from flint import arb, arb_mat
from models import certificates
from models.certificates import swinging
from models.rechecked import decided, outcome
from models.selection import every

from constructions.recurrent import counters, diagonal, gated, holding, selective
from constructions.recurrent.model import load
from tests.clocks import looks
from tests.planted import planted
from verify.arithmetic.readings import Real, reading_of
from verify.checker import formats, recurrent, rounded
from verify.checker import gated as checked_gates
from verify.checker.inductive import check
from verify.checker.reading import FAILS, NOT_CHECKABLE, UNREADABLE, Refusal
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify, exhaustive
from verify.tasks.recurrent import chain, proof, search
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

ROOT = Path(__file__).parents[2]
TRAINED = ROOT / "tests" / "data" / "recurrent" / "gru_seed13_stop0.25.safetensors"


def modular(model, m=10, length=None):
    return Homogeneous(model, Task.of("modular", modulus=m), length)


def counted(model, C=2, length=None):
    return Selective(model, Task.of("selective", types=2, max_count=C), length)


def diagonal_cell(a=(1.0, 0.5)):
    """Two states, one of which fades; logits are lines through 1, 2 and 3 of the other."""
    cell = gated.DiagonalCell(*(torch.tensor(x, dtype=torch.float64) for x in (a, [[1.0, 0.25]], [1.0, 0.25])))
    V = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
    return gated.GatedModel(cell, V, torch.tensor([-0.5, -2.0, -4.5], dtype=torch.float64))


CASES = {
    "ssm": lambda: (modular(counters.cyclotomic(m=10)), "real"),
    "relu": lambda: (modular(counters.ring(m=4), 4), "real"),
    "decay": lambda: (modular(diagonal.decays(m=3, s=2, N=4), 3, 4), "real"),
    "decay, wrong": lambda: (modular(diagonal.decays(m=3, s=2, N=4), 3), "real"),
    "rotation": lambda: (modular(diagonal.rotation(m=10, dtype=torch.float32), 10, 10**6), "real"),
    "rotation, wrong": lambda: (modular(diagonal.rotation(m=10, dtype=torch.float32)), "real"),
    "thermometer": lambda: (counted(selective.thermometer(types=2, max_count=2)), "real"),
    "thermometer, p8": lambda: (counted(selective.thermometer(types=2, max_count=2)), "p8"),
    "rings": lambda: (
        Selective(selective.rings(types=2, m=2), Task.of("selective-modular", types=2, modulus=2), None),
        "bfloat16",
    ),
    "adders": lambda: (counted(selective.adders(types=2, max_count=2, length=6), 2, 6), "real"),
    "held": lambda: (counted(holding.counters(types=2, max_count=2, dtype=torch.float32), 2, 100), "real"),
    "held, wrong": lambda: (counted(holding.counters(types=2, max_count=10, dtype=torch.float32), 10), "real"),
    "mamba": lambda: (modular(gated.decays(kind="mamba", m=3, s=2, N=4), 3, 4), "real"),
    "s4": lambda: (modular(diagonal_cell(), 3, 3), "real"),
    "s4, wrong": lambda: (modular(diagonal_cell(), 3, 9), "real"),
    "rwkv, held": lambda: (counted(gated.counters(kind="rwkv", types=2, max_count=2), 2, 100), "real"),
    "rwkv, wrong": lambda: (
        counted(gated.counters(kind="rwkv", types=2, max_count=10, dtype=torch.float32), 10),
        "real",
    ),
    "cycle, float32": lambda: (modular(counters.cycle(m=3), 3), "float32"),
    "cycle, p14": lambda: (modular(counters.cycle(m=8), 8), "p14"),
    "trained, float32": lambda: (modular(load(TRAINED)), "float32"),
    "cycle, bits": lambda: (modular(counters.cycle(m=3, dtype=torch.bfloat16), 3), None),
}


@cache
def saved(name):
    problem, precision = CASES[name]()
    if precision is None:
        certificate = exhaustive(problem, effort=Effort(budget=30))
    else:
        certificate = certify(problem, Real() if precision == "real" else reading_of(precision), Effort(budget=30))
    model = problem.model
    weights = bytes_of(model)
    found = json.loads(certificate.about(weights).to_json())
    return weights, certificates.with_signs(found) if name.startswith("thermometer") else found


@pytest.mark.parametrize("name", every(3, CASES))
def test_honest_certificates_hold(name):
    weights, certificate = saved(name)
    assert certificate["verdict"] == ("REFUTED" if "wrong" in name else "PROVED")
    assert outcome(weights, certificate) == certificate["verdict"]


def test_an_s4_file_is_of_decays_or_of_an_angle():
    """A certificate of a diagonal cell was refused for want of an angle; a forged one, of what it keeps, is caught."""
    for name in ("s4", "s4, wrong", "rotation"):
        weights, certificate = saved(name)
        assert outcome(weights, certificate) == certificate["verdict"]
    weights, certificate = saved("s4")
    weights = bytes_of(diagonal_cell(a=(0.5, 0.5)))  # which is wrong
    forged = certificate | {"weights_sha256": hashlib.sha256(weights).hexdigest()}
    assert outcome(weights, forged) == FAILS
    with planted(checked_gates, "tables", 'for name in ("a", "c")', 'for name in ("u", "c")'):
        assert outcome(weights, forged) == "PROVED"
    in_format = certify(modular(diagonal_cell(), 3, 3), reading_of("float32"), Effort(budget=30))
    weights = bytes_of(diagonal_cell())
    assert outcome(weights, json.loads(in_format.about(weights).to_json())) == in_format.verdict.value


def at(*places, value):
    """Sets what stands at a place of a certificate, or changes it by a function."""

    def change(c):
        for place in places[:-1]:
            c = c[place]
        c[places[-1]] = value(c[places[-1]]) if callable(value) else value

    return change


def more(x):
    return x * 1.5 + 1


TAMPERED = [
    *[(name, at("margin", value=more)) for name in CASES],
    *[(name, at("inputs_covered", value="7")) for name in CASES],
    *[(name, at("task", value="histogram")) for name in CASES],
    *[(name, at("parameters", "colour", value=7)) for name in ("ssm", "rotation", "thermometer", "held", "mamba")],
    *[(name, at("parameters", "layers", value=1.0)) for name in ("ssm", "rotation", "thermometer", "held", "mamba")],
    *[(name, at("right_to", value=float)) for name in CASES if "wrong" in name],
    *[(name, at("counterexample", "more", value=1)) for name in CASES if "wrong" in name],
    *[(name, at("counterexample", "expected", value=float)) for name in CASES if "wrong" in name],
    *[(name, lambda c: _mispredicting(c)) for name in CASES if "wrong" in name],
    ("ssm", at("repeats", 1, value=lambda t: t - 1)),
    ("ssm", at("repeats", 0, value=0)),
    ("ssm", at("parameters", "modulus", value=5)),
    ("relu", at("repeats", value=[1, 3])),
    ("relu", lambda c: c.pop("repeats")),
    ("decay", lambda c: (c.update(length=5, inputs_covered="5"), c["parameters"].update(length=5))),
    ("decay, wrong", at("right_to", value=3)),
    ("decay, wrong", at("counterexample", "length", value=6)),
    ("decay, wrong", at("counterexample", "predicted", value=lambda x: x % 3 + 1)),
    ("rotation", lambda c: (c.update(length=10**8, inputs_covered=str(10**8)), c["parameters"].update(length=10**8))),
    ("rotation, wrong", at("counterexample", "length", value=lambda n: n + 10)),
    ("rotation, wrong", lambda c: (at("right_to", value=lambda n: n + 10)(c), _later(c, 10))),
    ("rotation, wrong", lambda c: (at("right_to", value=lambda n: n - 10)(c), _later(c, -10))),
    ("thermometer", at("invariant_found", "least_sign", value=1 - 2.0**-30)),
    ("thermometer", at("invariant_found", "least_sign", value=0.1)),
    ("thermometer", at("invariant_found", "cases", value=11)),
    ("thermometer, p8", at("parameters", "precision", value="p4")),
    ("thermometer, p8", lambda c: (c.update(reading="real"), c["parameters"].pop("precision"), _lower(c, 1.9999))),
    ("rings", at("invariant_found", "states", value=lambda n: n - 1)),
    ("adders", lambda c: (c.update(length=7, inputs_covered="128"), c["parameters"].update(length=7))),
    ("rings", at("parameters", "modulus", value=3)),
    ("held", lambda c: (c.update(length=10**12, inputs_covered=str(2**10**4)), c["parameters"].update(length=10**12))),
    ("s4", lambda c: (c.update(length=4, inputs_covered="4"), c["parameters"].update(length=4))),
    ("s4, wrong", at("right_to", value=2)),
    ("s4, wrong", at("counterexample", "length", value=5)),
    ("rwkv, wrong", at("right_to", value=lambda n: 2 * n)),
    ("held, wrong", at("right_to", value=lambda n: n + 3)),
    ("held, wrong", at("counterexample", "length", value=lambda n: n - 1)),
    ("held, wrong", at("counterexample", "input", value="token 0 9 times, token 1 2000 times, token 0 1 times")),
    *[
        (name, change)
        for name in ("cycle, float32", "cycle, p14", "trained, float32")
        for change in (
            at("invariant", "entry", value=1),
            at("invariant", "entry", value=lambda n: n - 1),
            at("invariant", "place", value=lambda n: 1 - min(n, 1)),
            at("invariant", "exponents", value=lambda x: [e + 9 for e in x]),
            at("invariant", "exponents", value=lambda x: [e - 12 for e in x]),
            at("invariant", "centres", value=lambda x: x[1:] + x[:1]),
            at("invariant", "centres", 1, 0, value=lambda x: x + 0.3),
            at("invariant", "shapes", 0, 0, 0, value=lambda x: x * 40),
            at("invariant", "rate", value=1.01),
            at("invariant", "margin", value=0.0),
            at("parameters", "precision", value="p4"),
        )
    ],
    ("cycle, bits", at("repeats", "state_after", value=lambda n: n - 1)),
    ("cycle, bits", at("repeats", "comes_again_after", value=lambda n: n - 3)),
    ("cycle, bits", at("states", 2, 0, value=lambda x: x * 1.0625)),
    ("cycle, bits", at("states", 2, 0, value=lambda x: x * (1 + 2.0**-12))),  # none of the format's numbers
    ("cycle, bits", at("states", value=lambda x: x[1:])),
    ("cycle, bits", at("parameters", "modulus", value=2)),
]


SEARCHED = {
    "boxes": (swinging(1.0, 0.5), "PROVED", None),
    "run": (swinging(1 - 2.0**-7, 8.0), "REFUTED", False),
}


@pytest.mark.parametrize("name", every(4, SEARCHED))
def test_what_boxes_and_single_runs_decide_in_a_format_is_not_checkable_without_them(name):
    """As in certificates of before; with them it holds."""
    model, verdict, is_first = SEARCHED[name]
    found, weights = certify(modular(model, 2), reading_of("bfloat16"), Effort(budget=looks(2000))), bytes_of(model)
    certificate = json.loads(found.about(weights).to_json())
    case = certificate["counterexample"] or {}
    assert case.get("is_first") is is_first and outcome(weights, certificate) == verdict
    certificate.pop(name)
    assert outcome(weights, certificate) == NOT_CHECKABLE
    assert outcome(weights, certificate | {"weights_sha256": "0" * 64}) == FAILS


def test_a_wrong_length_in_reals_that_is_not_said_to_be_the_first_is_not_checkable():
    model = swinging(1.0, 8.0)
    found, weights = certify(modular(model, 2), Real()), bytes_of(model)
    certificate = json.loads(found.about(weights).to_json())
    assert outcome(weights, certificate) == "REFUTED"
    certificate["counterexample"]["is_first"] = False
    assert outcome(weights, certificate) == NOT_CHECKABLE


def test_a_wrong_length_whose_class_is_not_said_is_not_checkable():
    model = swinging(1.0, 8.0)
    found, weights = certify(modular(model, 2), Real()), bytes_of(model)
    certificate = json.loads(found.about(weights).to_json())
    certificate["counterexample"]["predicted"] = None
    assert outcome(weights, certificate) == NOT_CHECKABLE
    certificate["counterexample"].pop("predicted")
    assert outcome(weights, certificate) == FAILS


def _later(c, n):
    c["counterexample"].update(length=c["counterexample"]["length"] + n)
    c["counterexample"].update(input=f"token 0, {c['counterexample']['length']} times")


def _mispredicting(c):
    """Another class, with a margin that any class that wins over the right one has."""
    case, largest = c["counterexample"], c["parameters"].get("modulus") or c["parameters"]["max_count"]
    case["predicted"] = next(x for x in range(1, largest + 1) if x not in (case["predicted"], case["expected"]))
    c["margin"] = -0.0


def _lower(c, margin):
    c.update(margin=margin)


@pytest.mark.parametrize("number", every(12, range(len(TAMPERED))))
def test_tampered_certificates_are_refused(number):
    name, change = TAMPERED[number]
    weights, certificate = saved(name)
    changed = copy.deepcopy(certificate)
    change(changed)
    if "wrong" in name and changed["margin"] > 0:
        changed["margin"] = -1e9  # worse than it is
    assert json.dumps(changed) != json.dumps(certificate)
    assert outcome(weights, changed) in (FAILS, UNREADABLE, NOT_CHECKABLE)


def test_the_token_that_takes_most_is_found_where_floats_are_all_one():
    """Two forget gates below 1 by 2e-17 and 4e-17: what the first one proves is refused of the second."""
    made = []
    for weak in (0.0, 0.7):
        model = holding.counters(types=3, max_count=3)
        with torch.no_grad():
            model.cell.bias_ih_l0[3] = 38.4
            model.cell.weight_ih_l0[3, 2] = -weak
        found, weights = (
            certify(Selective(model, Task.of("selective", types=3, max_count=3), None)),
            bytes_of(model),
        )
        made.append((weights, json.loads(found.about(weights).to_json())))
        assert outcome(*made[-1]) == "REFUTED"
    (_, first), (weights, second) = made
    assert first["right_to"] > second["counterexample"]["length"]
    assert outcome(weights, first | {"weights_sha256": second["weights_sha256"]}) in (FAILS, NOT_CHECKABLE)


def test_a_forgotten_rounding_term_is_refused():
    """The honest ellipsoids in 14 bits hold; those that leave out what rounding adds do not."""
    model = counters.cycle(m=10)
    with (
        planted(chain, "_rounding", "return delta", "return 0 * delta"),
        planted(search, "noise", "if rules.at is None:", "if True:"),
        planted(proof, "_rings", "(0, -2, -6)", "(-24,)"),  # else they are larger than they must be
    ):
        forged = certify(modular(model), reading_of("p14"), Effort(budget=30))
    weights = bytes_of(model)
    assert forged.verdict.value == "PROVED"
    assert "invariant" in forged.extra
    assert outcome(weights, json.loads(forged.about(weights).to_json())) in (FAILS, NOT_CHECKABLE)


@pytest.mark.parametrize("name", ["ssm", "thermometer", "rings", "held", "cycle, float32", "cycle, bits", "rotation"])
def test_other_weights_are_refused_even_when_the_digest_was_made_to_fit(name):
    weights, certificate = saved(name)
    changed = bytearray(weights)
    changed[-1] ^= 0x40  # the exponent of the readout's last number
    fitted = certificate | {"weights_sha256": hashlib.sha256(bytes(changed)).hexdigest()}
    assert outcome(bytes(changed), certificate) == FAILS and outcome(bytes(changed), fitted) in (FAILS, NOT_CHECKABLE)


# ---- what was once said to hold


STRING = "token 0 9 times, token 1 {} times, token 0 1 times"
FORGED = {
    "-2 times": ("held", "token 0 -2 times, token 1 7 times, token 0 1 times", 6, -1, 0, 0),
    "a token -2": ("held, wrong", "token -2 9 times, token 1 26983199 times, token -2 1 times", 26983209, 10, 9, 5),
    "a sign": ("held, wrong", STRING.format("+26983199"), 26983209, 10, 9, 5),
    "an underscore": ("held, wrong", STRING.format("26_983199"), 26983209, 10, 9, 5),
    "other digits": ("held, wrong", STRING.format("2698319\u0669"), 26983209, 10, 9, 5),
    "two blanks": ("held, wrong", STRING.format(" 26983199"), 26983209, 10, 9, 5),
    "the first, and shorter ones may be wrong": ("held, wrong", STRING.format(26983199), 26983209, 10, 9, 0, True),
    "the first, and longer": ("held, wrong", STRING.format(2 * 26983199), 2 * 26983199 + 10, 10, 9, 5, True),
    "the first of those of other lengths": ("held, wrong", STRING.format(26983199), 26983209, 10, 9, 26983209, True),
}


@pytest.mark.parametrize("name", FORGED)
def test_strings_that_are_none_and_first_ones_that_are_not_are_refused(name):
    of, shown, length, expected, predicted, right_to, *first = FORGED[name]
    weights, certificate = saved(of)
    case = {"input": shown, "length": length, "expected": expected, "predicted": predicted}
    case |= {"is_first": True} if first else {}
    told = {"verdict": "REFUTED", "inputs_covered": "1", "margin": -1e-19, "right_to": right_to, "counterexample": case}
    assert outcome(weights, certificate | told | {"tightest": None}) == FAILS


def late_one():
    """A ReLU network that is right in real arithmetic, and wrong in bfloat16 from length 57 on; its tensors."""
    names, n = ["F", "G1", "G2", "G3", "P", "A", "Y"], 8
    at, C, H = {name: i for i, name in enumerate(names)}, len(names), len(names) + n
    W, b = torch.zeros(H, H), torch.zeros(H)
    edges = [("F", C, -2304), ("G1", 0, 1), ("G2", 1, 1), ("G3", 2, 1), ("P", 4, 0.80078125), ("P", 3, 32), ("A", 5, 1)]
    edges += [("A", 3, 1), ("Y", 6, 1), ("Y", 5, 1), ("Y", 4, -1), *(("A", C + k, -1.8984375) for k in range(n))]
    for name, j, weight in edges:
        W[at[name], j] = weight
    for name, bias in {"F": 1152, "G1": -432, "G2": -128, "G3": -24, "P": -160, "Y": -352}.items():
        b[at[name]] = bias
    b[C:] = 1
    V, c = torch.zeros(2, H), torch.tensor([8192.0, 0.0])
    V[0, at["Y"]], V[1, 0] = -1, 16
    cell = {"cell.weight_ih_l0": torch.zeros(H, 1), "cell.weight_hh_l0": W, "cell.bias_ih_l0": torch.zeros(H)}
    return cell | {"cell.bias_hh_l0": b, "readout.weight": V, "readout.bias": c}


def bfloat16(x):
    """The nearest one, ties to even; none here is subnormal."""
    if not x:
        return x
    e = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    unit = Fraction(2) ** (e - (Fraction(2) ** e > abs(x)) - 7)
    return round(x / unit) * unit


def first_wrong(tensors, rounded, steps):
    """Run in one order: the own state, the others, then the bias."""
    W = [[Fraction(x) for x in row] for row in tensors["cell.weight_hh_l0"].tolist()]
    b, h = [Fraction(x) for x in tensors["cell.bias_hh_l0"].tolist()], [Fraction(0)] * len(W)
    for t in range(1, steps + 1):
        after = []
        for i, row in enumerate(W):
            total = Fraction(0)
            for j in [i, *range(i), *range(i + 1, len(W))]:
                total = rounded(total + rounded(row[j] * h[j]))
            after.append(max(Fraction(0), rounded(total + b[i])))
        h = after
        logits = rounded(8192 - h[6]), rounded(16 * h[0])
        if not (logits[1] > logits[0] if t == 1 else logits[0] > logits[1]):
            return t
    return None


def of_file(tensors, about, **fields):
    weights = safetensors.torch.save(tensors, metadata={"weightproof": json.dumps(about)})
    _, honest = saved("cycle, float32")
    return weights, honest | {"weights_sha256": hashlib.sha256(weights).hexdigest()} | fields


def test_a_box_is_no_ball():
    """The slopes over a box were taken for those over the unit ball within it, and so what they reach."""
    tensors = late_one()
    assert (first_wrong(tensors, lambda x: x, 70), first_wrong(tensors, bfloat16, 70)) == (None, 57)
    sizes = [410.0, 75.0, 18.0, 3.8, 24.0, 12.0, 150.0, *[0.12] * 8]
    ring = {"entry": 300, "place": 0, "rate": 1.0, "margin": 1.0, "centres": [[0.0] * 7 + [1.0] * 8]}
    ring |= {"exponents": [0], "shapes": [[[0.0] * i + [size] for i, size in enumerate(sizes)]]}
    said = {"task": "first-homogeneous", "model": "rnn", "units": 15, "layers": 1, "activation": "relu"}
    said |= {"length": "all", "dtype": "float32", "precision": "bfloat16"}
    about = {"activation": "relu", "model": "rnn"}
    weights, certificate = of_file(tensors, about, parameters=said, margin=1.0, invariant=ring, tightest=None)
    assert outcome(weights, certificate) == NOT_CHECKABLE


def test_sums_whose_parts_overflow_are_refused():
    """3e38 + 3e38 - 3e38 - 3e38 is 0, or infinity: what adds up to little in the end may not on the way."""
    on = rounded.Rounding(rounded.BinaryFormat(*formats.NAMED["float32"]))
    one, big = [arb(1)] * 2, arb_mat([[arb(3e38), arb(-3e38)], [arb(0), arb(0)]])
    with pytest.raises(Refusal):
        on.fits(recurrent.StoredLayer(big, big, [arb(0)] * 2, [arb(0)] * 2), one, one)
    small = arb_mat([[arb(1), arb(-1)], [arb(0), arb(0)]])
    on.fits(recurrent.StoredLayer(small, small, [arb(0)] * 2, [arb(0)] * 2), one, one)


@pytest.mark.parametrize("name", ["ssm", "rotation", "thermometer", "held", "mamba", "cycle, float32", "cycle, bits"])
@pytest.mark.parametrize("change", ["a second row", "one row of a matrix", "another dtype"])
def test_files_of_which_only_a_part_was_read_are_refused(name, change):
    weights, certificate = saved(name)
    tensors, n = safetensors.torch.load(weights), int.from_bytes(weights[:8], "little")
    about = json.loads(weights[8 : 8 + n])["__metadata__"]
    bias = tensors["readout.bias"]
    if change == "another dtype":
        tensors["readout.bias"] = bias.double() if bias.dtype != torch.float64 else bias.float()
    else:
        tensors["readout.bias"] = torch.stack([bias, bias + 100])[: 2 if change == "a second row" else 1]
    changed = safetensors.torch.save(tensors, metadata=about)
    fitted = certificate | {"weights_sha256": hashlib.sha256(changed).hexdigest()}
    assert outcome(changed, fitted) == UNREADABLE


def test_the_margin_of_a_run_is_named_as_trusted():
    weights, certificate = saved("cycle, bits")
    assert "margin" in check(weights, json.dumps(certificate).encode())[1]


@pytest.mark.parametrize("precision", ["p\u0668", "p08", "p+8", "p 8", "p8_", "p1", "p54", ["p8"], 8])
def test_formats_are_named_as_the_prover_names_them(precision):
    weights, certificate = saved("thermometer, p8")
    changed = copy.deepcopy(certificate)
    changed["parameters"]["precision"] = precision
    assert outcome(weights, changed) in (FAILS, NOT_CHECKABLE)


def test_it_imports_nothing_of_the_prover():
    program = (
        "import sys, verify.checker.inductive\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in {'torch', 'numpy', 'constructions', 'bounds'}\n"
        "    or m.startswith('verify.') and not m.startswith('verify.checker')))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert found.strip() == "[]"


@pytest.mark.deep
def test_a_line_that_creeps_into_ellipsoids_is_shown_by_them():
    """Its proof is by tubes; the ellipsoids are found in floats, and those that are entered later are refused."""
    asked = modular(load(ROOT / "tests/data/table_a1/modular-lstm-2.safetensors"))
    weights, c = decided(asked, "real", Effort(budget=looks(20_000)))
    assert "tubes" in c["argument"] and outcome(weights, c) == c["verdict"] == "PROVED"
    c["invariant"]["entry"] -= 500
    assert outcome(weights, c) in (FAILS, NOT_CHECKABLE)
    with planted(proof, "_float_entry", "return int(t[is_in.argmax()])", "return 300 + start % 10"):
        weights, c = decided(asked, "real", Effort(budget=looks(20_000)))
    assert c["verdict"] == "PROVED" and c["invariant"]["entry"] < 310
    assert outcome(weights, c) in (FAILS, NOT_CHECKABLE)


def test_states_that_come_again_are_said_of_proofs_for_all_lengths():
    """Up to a length nothing would compare them."""
    weights, text = certificates.honest("relu")
    c = json.loads(text)
    short = c | {"length": 9, "inputs_covered": "9", "parameters": c["parameters"] | {"length": 9}}
    assert outcome(weights, short) == FAILS
    del short["repeats"]
    assert outcome(weights, short) == "PROVED"
