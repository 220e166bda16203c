"""Circuits and languages: what is true is accepted, and nothing that is false by an oracle that runs every input."""

import json
import random
from dataclasses import replace
from hashlib import sha256
from itertools import product
from unittest import mock

import pytest
import torch
from flint import arb
from models.circuits import inputs, mutate, random_circuit
from models.selection import first
from oracles.circuit import NaiveTransformer, gate_value, gate_values
from oracles.circuit_real import next_tokens
from test_checker_real import outcome

from constructions.circuit_simulation import build
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.circuits.weights import as_bytes
from constructions.regular_language import Unrolling, from_regex, majority, unroll
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import circuits, languages
from verify.checker.chains import Balls, Chain
from verify.checker.constant_bits import Bits
from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, Refusal
from verify.frame import decide
from verify.tasks.circuit import dtype, proof, steps
from verify.tasks.circuit.language.task import for_strings
from verify.tasks.circuit.program import program

READINGS = ("bits", "real", "float32", "bfloat16")


def decided(model, parts, reading, unrolling=None):
    """The certificate as --save writes it, and the weights' bytes."""
    fmt = None if reading == "real" else FORMATS.get(reading)
    found = proof.certify(model, parts) if reading == "bits" else dtype.certify(model, parts, fmt=fmt)
    found = found if unrolling is None else for_strings(found, unrolling)
    weights = as_bytes(model)
    saved = json.loads(found.about(weights).to_json()) | {"program": program(parts, unrolling)}
    return weights, saved


def checked(weights, saved):
    return outcome(weights, json.dumps(saved | {"weights_sha256": sha256(weights).hexdigest()}))


def drawn(seed):
    rng = random.Random(seed)
    return rng, decompose(random_circuit(rng, rng.randrange(1, 4), rng.randrange(1, 6)))


def test_a_header_whose_entry_is_no_text_is_unreadable():
    parts = drawn(1)[1]
    weights, _ = decided(build(parts.circuit, s=3), parts, "real")
    size = 8 + int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8:size])
    for entry in (5, None, ["{}"]):
        changed = json.dumps(header | {"__metadata__": {"weightproof.circuit": entry}}).encode()
        with pytest.raises(Refusal, match="name no circuit") as refused:
            circuits._read(len(changed).to_bytes(8, "little") + changed + weights[size:])
        assert refused.value.exit_code == UNREADABLE


# ---- the oracle


def computes(model, parts, reading):
    """Whether every token of every chain of thought is its gate's value: all inputs run by the oracles.

    Real arithmetic on rounded weights is one of the evaluations in a dtype.
    """
    stored = torch.float64 if reading in ("bits", "real") else getattr(torch, reading.replace("tf32", "float32"))
    state = {k: x.to(stored).double() for k, x in model.state_dict().items()}
    gates = [(kind, fan_in) for kind, fan_in, _ in parts.circuit.gates]
    naive = NaiveTransformer(model.state_dict(), model.n, model.T, model.s)
    for bits in inputs(model.n):
        right = gate_values(gates, bits)
        if reading == "bits":
            if naive.generate(bits)[model.n :] != right[model.n :]:
                return False
        elif next_tokens(state, right[:-1])[model.n - 1 :] != right[model.n :]:
            return False
    return True


def is_the_circuit(p):
    """Whether the steps are the gates, on all inputs."""
    n = p["inputs"]
    for bits in inputs(n):
        for extra in (0, 1) if n == 0 else (None,):
            own, tokens = [*bits], [*bits] if n else [extra]
            for kind, *read in p["gates"]:
                own.append({"zero": 0, "one": 1}[kind] if not read else gate_value(kind, [own[x] for x in read]))
            for read in p["steps"]:
                tokens.append(1 - tokens[read[0]] if len(read) == 1 else tokens[read[0]] & tokens[read[1]])
            if [tokens[x] for x in p["node_of"]] != own:
                return False
    return True


def is_the_language(saved):
    """Whether the output is what the automaton says, on all strings, and so many are accepted."""
    p, alphabet, length = saved["program"], saved["parameters"]["alphabet"], saved["parameters"]["length"]
    automaton, width, accepted = p["automaton"], max(1, (len(alphabet) - 1).bit_length()), 0
    for word in product(range(len(alphabet)), repeat=length):
        state, own = 0, [a >> j & 1 for a in word for j in range(width)]
        for a in word:
            state = state if state == -1 else automaton["step"][state][a]
        for kind, *read in p["gates"]:
            own.append({"zero": 0, "one": 1}[kind] if not read else gate_value(kind, [own[x] for x in read]))
        accepted += state in automaton["accepting"]
        if own[p["outputs"][0]] != (state in automaton["accepting"]):
            return False
    return saved["accepted"] == str(accepted) and saved["inputs_covered"] == str(len(alphabet) ** length)


# ---- circuits


@pytest.mark.parametrize("seeds", first(1, [range(2), range(2, 200)]), ids=str)
@pytest.mark.parametrize("reading", READINGS)
def test_drawn_circuits_and_mutated_weights(reading, seeds):
    """Honest proofs hold; proofs moved to other weights hold only where the oracle finds no wrong token."""
    held = refused = 0
    for seed in seeds:
        rng, parts = drawn(seed)
        model = build(parts.circuit, s=rng.choice([2, 3]))
        weights, saved = decided(model, parts, reading)
        assert saved["verdict"] == "PROVED" and checked(weights, saved) == (0, "PROVED"), seed
        factor, part = (1.001, 0.0) if reading in ("bits", "real") else (1.5, 0.25)
        assert checked(weights, saved | {"margin": factor * saved["margin"] + 1e-9})[0] == 1
        for _ in range(4):
            other = build(parts.circuit, s=model.s)
            with torch.no_grad():
                mutate(other, rng)
            if checked(as_bytes(other), saved | {"margin": part * saved["margin"]})[0] == 0:
                held += 1
                assert computes(other, parts, reading), seed
            else:
                refused += 1
    assert held and refused


@pytest.mark.parametrize("seeds", first(1, [range(40), range(40, 2000)]), ids=str)
def test_changed_programs_hold_only_where_they_are_the_circuit(seeds):
    """Gates, steps and which is which, moved: the weights belong to the steps."""
    refused = 0
    for seed in seeds:
        rng, parts = drawn(seed // 8)
        weights, saved = decided(build(parts.circuit, s=2), parts, "bits")
        p = saved["program"]
        which = rng.choice(["gates", "gates", "steps", "node_of", "inputs", "outputs"])
        rng = random.Random(seed)
        if which == "inputs":
            p["inputs"] += rng.choice([-1, 1])
        elif which == "gates" and p["gates"]:
            gate = rng.choice(p["gates"])
            place = rng.randrange(len(gate))
            gate[place] = rng.choice(["and", "nor", "xor", "not", "zero"]) if place == 0 else rng.randrange(3)
        elif which == "steps" and p["steps"]:
            step = rng.choice(p["steps"])
            step[rng.randrange(len(step))] = rng.randrange(5)
        elif p[which]:
            p[which][rng.randrange(len(p[which]))] = rng.randrange(len(p["node_of"]) + 1)
        saved["statistics"] = statistics(p)
        code = checked(weights, saved)[0]
        refused += code != 0
        assert code != 0 or is_the_circuit(p), (seed, which)
    assert refused


def statistics(p):
    """Sizes as a liar makes them fit."""
    depth = [0] * p["inputs"]
    for _, *read in p["gates"]:
        depth.append(1 + max((depth[x] for x in read if x < len(depth)), default=0))
    found = {
        "inputs": p["inputs"],
        "outputs": len(p["outputs"]),
        "gates": len(p["gates"]),
        "depth": max(depth, default=0),
    }
    kinds = [gate[0] for gate in p["gates"]]
    widest = max((len(gate) - 1 for gate in p["gates"]), default=0)
    return found | {"largest fan-in": widest} | {kind: kinds.count(kind) for kind in kinds}


def test_every_kind_of_gate():
    gates = [Gate(kind, (0, 1, 2), kind) for kind in ("and", "nand", "or", "nor", "xor", "xnor")]
    gates += [Gate("buf", (3,), "b"), Gate("not", (4,), "n"), Gate("zero", (), "z"), Gate("one", (), "o")]
    gates += [Gate("xor", (3, 4, 3, 11, 10), "mixed")]
    parts = decompose(Circuit("all", ("x", "y", "w"), tuple(gates), (("q", 13),)))
    for reading in READINGS:
        model = build(parts.circuit, s=5 if reading == "bfloat16" else 3)
        assert checked(*decided(model, parts, reading)) == (0, "PROVED")
    weights, saved = decided(build(parts.circuit, s=3), parts, "bits")
    for i, gate in enumerate(gates):
        said = json.loads(json.dumps(saved))
        said["program"]["gates"][i][0] = {"xor": "or", "zero": "one", "one": "zero", "buf": "not", "not": "buf"}.get(
            gate.kind, "xor"
        )
        said["statistics"] = statistics(said["program"])
        assert checked(weights, said)[0] == 1


def test_any_value_at_any_place_is_no_crash():
    weights, saved = decided(*language("a(b|c)*", "abc", 2), "bits", unroll(from_regex("a(b|c)*", "abc"), 2))
    rng, places = random.Random(0), [*paths(saved)]
    for path in rng.sample(places, 150):
        said = json.loads(json.dumps(saved))
        inner = said
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = rng.choice([None, True, -1, 7, 10**9, 0.5, "x", [], [1], [[]], {}, {"a": 1}])
        code, _ = checked(weights, said)
        assert code != 0 or path[0] in TRUSTED or is_the_language(said), path


TRUSTED = ("seconds", "claim", "argument", "forward_runs", "harmless_differences", "smallest_bits", "smaller_bits")
TRUSTED += ("weights_sha256",)  # which is made to fit


def paths(value, path=()):
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


# ---- languages


def language(regex, alphabet, length):
    parts = decompose(unroll(from_regex(regex, alphabet), length).circuit)
    return build(parts.circuit, s=3), parts


@pytest.mark.parametrize(
    "automaton", first(1, [from_regex("(01)*", "01"), majority(4), from_regex("a(b|c)*", "abc")]), ids=repr
)
def test_languages_hold_and_changed_automata_do_not(automaton):
    unrolling = unroll(automaton, 4)
    parts = decompose(unrolling.circuit)
    for reading in READINGS:
        weights, saved = decided(build(parts.circuit, s=3), parts, reading, unrolling)
        assert checked(weights, saved) == (0, "PROVED") and is_the_language(saved)
    rng, refused = random.Random(1), 0
    for _ in range(30):
        said = json.loads(json.dumps(saved))
        found, which = said["program"]["automaton"], rng.randrange(4)
        if which == 0:
            row = rng.choice(found["step"])
            row[rng.randrange(len(row))] = rng.randrange(-1, len(found["step"]))
        elif which == 1:
            found["accepting"] = rng.sample(range(len(found["step"])), rng.randrange(len(found["step"])))
        elif which == 2:
            pairs = rng.choice([pairs for pairs in found["slices"] if pairs] or [[[0, 0]]])
            rng.choice(pairs)[rng.randrange(2)] = rng.randrange(8)
        else:
            said["accepted"] = str(rng.randrange(20))
        code = checked(weights, said)[0]
        refused += code != 0
        assert code != 0 or is_the_language(said)
    assert refused


@pytest.mark.parametrize("reading", first(1, READINGS))
def test_wrong_languages_hold_and_other_strings_do_not(reading):
    """A wrong step at bits that write a string; at others, with another string, or of a prover that reads bits in
    another order, it is refused."""
    unrolling = unroll(from_regex("a|c", "abc"), 1)
    parts = decompose(unrolling.circuit)
    model = build(parts.circuit, s=3)
    with torch.no_grad():
        model.layers[1].b_1[1] += 1.0
    weights, saved = decided(model, parts, reading, unrolling)
    case = saved["counterexample"]
    assert (case["input"], case["string"]) == ("10", "b") and checked(weights, saved) == (0, "REFUTED")
    none = checked(weights, saved | {"counterexample": case | {"input": "11"}})
    assert none == (1, "counterexample: its bits encode no string")
    for name, value in (("string", "c"), ("string", ""), ("input", "00")):
        assert checked(weights, saved | {"counterexample": case | {name: value}})[0] == 1
    assert checked(weights, saved | {"inputs_covered": "3"})[0] == 1
    assert checked(as_bytes(build(parts.circuit, s=3)), saved)[0] == 1
    with planted(Unrolling, "decode", "[::-1]", ""):
        weights, faulty = decided(model, parts, reading, unrolling)
    assert faulty["counterexample"]["string"] == "c" and checked(weights, faulty)[0] == 1
    with planted(circuits, "spelled", "[::-1]", ""):
        assert checked(weights, saved)[0] == 1 and checked(weights, faulty)[0] == 0


def test_steps_that_no_input_brings():
    """Where an AND never sees two ones, one bit before the point is enough."""
    unrolling = unroll(from_regex("(01)*", "01"), 3)
    parts = decompose(unrolling.circuit)
    weights, saved = decided(build(parts.circuit, s=1), parts, "bits", unrolling)
    assert saved["verdict"] == "PROVED" and saved["harmless_differences"] > 0
    assert checked(weights, saved) == (0, "PROVED")
    assert checked(weights, saved | {"harmless_differences": 0})[0] == 1


def wrong_language(reading):
    """A language of three letters, whose AND reads too little: its unrolling, the file and the certificate."""
    unrolling = unroll(from_regex("a(b|c)*", "abc"), 2)
    parts = decompose(unrolling.circuit)
    return (*decided(faulty_weights(parts), parts, reading, unrolling), parts)


@pytest.mark.parametrize("reading", first(1, READINGS))
def test_languages_that_are_wrong_hold_and_other_strings_do_not(reading):
    weights, saved, parts = wrong_language(reading)
    case = saved["counterexample"]
    assert saved["verdict"] == "REFUTED" and checked(weights, saved) == (0, "REFUTED")
    bits = case["input"]
    for input_, string in (
        (bits, case["string"][::-1] if case["string"][0] != case["string"][1] else "cb"),
        ("11" + bits[2:], "da"),
        ("1" + bits, case["string"]),
        ("2" + bits[1:], case["string"]),
    ):
        said = saved | {"counterexample": case | {"input": input_, "string": string}}
        assert checked(weights, said)[0] == 1
    assert checked(as_bytes(build(parts.circuit, s=3)), saved)[0] == 1  # of weights that are right
    assert checked(weights, saved | {"accepted": "7"})[0] == 1
    assert checked(weights, saved | {"inputs_covered": "9"})[0] == 1
    assert checked(weights, saved | {"margin": 2 * saved["margin"] - 1})[0] == 1


def test_a_string_that_is_read_backwards_is_found():
    """Faults in the prover, and in the checker."""
    with planted(type(unroll(from_regex("a", "abc"), 1)), "decode", "[::-1], 2)", ", 2)"):
        weights, lied, _ = wrong_language("real")
    weights, saved, _ = wrong_language("real")
    is_told = lied["counterexample"]["string"] != saved["counterexample"]["string"]
    assert is_told == (checked(weights, lied)[0] == 1) and is_told
    with planted(languages, "spelled", "[::-1], 2)", ", 2)"), mock.patch.object(circuits, "spelled", languages.spelled):
        assert checked(weights, saved)[0] == 1


@pytest.mark.parametrize("seeds", first(1, [range(4, 8), range(400)]), ids=str)
def test_runs_of_wrong_steps_are_what_the_oracle_runs(seeds):
    """Drawn circuits with mutated weights: a wrong step holds, also where attention is not sharp; a right one never."""
    held = 0
    for seed in seeds:
        rng, parts = drawn(seed)
        model = build(parts.circuit, s=2)
        with torch.no_grad():
            mutate(model, rng)
            model.layers[0].W_Q.mul_(rng.choice([0.25, 1.0]))
        weights, saved = decided(model, parts, "real")
        if saved["verdict"] != "REFUTED":
            continue
        code, why = checked(weights, saved)
        assert code == 0, (seed, why)
        case, held = saved["counterexample"], held + 1
        for bits in inputs(model.n):
            for step in range(1, len(parts.circuit.gates) + 1):
                said = saved | {"counterexample": case | {"input": "".join(map(str, bits)), "step": step}}
                gates = [(kind, fan_in) for kind, fan_in, _ in parts.circuit.gates]
                right = gate_values(gates, bits)
                is_wrong = next_tokens(model.state_dict(), right[:-1])[model.n + step - 2] != right[model.n + step - 1]
                assert is_wrong or checked(weights, said)[0] != 0, (seed, bits, step)
    assert held


# ---- scores that depend on tokens


def near(seed, reading):
    """A built model with noise in some of its numbers, so that no two scores are the same."""
    rng, parts = drawn(seed)
    model, draw = build(parts.circuit, s=3), torch.Generator().manual_seed(seed)
    scale, share = rng.choice([2.0**-12, 2.0**-5, 2.0**-3, 2.0**-2]), rng.choice([0.1, 0.5, 1.0])
    with torch.no_grad():
        for x in model.parameters():
            if x.numel():
                noise = torch.randn(x.shape, generator=draw) * scale * (x.abs().max() if reading == "real" else 1)
                x += noise * (torch.rand(x.shape, generator=draw) < share)
    return parts, model


def least_margin(model, parts):
    """The least distance of g on the right side of 1/2, over all inputs and steps: torch in float64."""
    model, gates = model.double(), [(kind, fan_in) for kind, fan_in, _ in parts.circuit.gates]
    found = []
    for bits in inputs(model.n):
        right = gate_values(gates, bits)
        for step in range(model.n, len(right)):
            g = model(torch.tensor([right[:step]])).flatten()[-1].item() - 0.5
            found.append(g if right[step] else -g)
    return min(found)


@pytest.mark.parametrize("seeds", first(1, [[1, 30, 78], range(300)]), ids=str)
@pytest.mark.parametrize("reading", ["real", "bits"])
def test_weights_near_the_built_ones(reading, seeds):
    """What is decided holds, and no margin that an input has not; a step of 78 is open where no input leads."""
    held = 0
    for seed in seeds:
        parts, model = near(seed, reading)
        weights, saved = decided(model, parts, reading)
        code = checked(weights, saved)[0]
        if saved["verdict"] == "UNKNOWN" or not parts.circuit.gates:
            continue
        assert code == 0 or code == NOT_CHECKABLE and reading == "bits", seed
        held += code == 0
        if saved["verdict"] == "REFUTED":
            assert checked(as_bytes(build(parts.circuit, s=3)), saved)[0] == 1
            flipped = saved["counterexample"] | {"expected": 1 - saved["counterexample"]["expected"]}
            assert checked(weights, saved | {"counterexample": flipped})[0] == 1
        elif reading == "real":
            least = least_margin(model, parts)
            assert (saved["margin"] or 0) <= least + 1e-12
            assert checked(weights, saved | {"margin": 1.001 * least + 1e-9})[0] != 0
        else:
            assert computes(model, parts, reading)
    assert held


def mutated(seed):
    rng, parts = drawn(seed)
    model = build(parts.circuit, s=3)
    with torch.no_grad():
        for _ in range(rng.randrange(1, 4)):
            mutate(model, rng)
        if rng.random() < 0.5:
            for layer in model.layers:
                layer.W_Q.mul_(rng.choice([0.05, 0.25]))
    return parts, model


def test_a_step_that_is_open_where_no_input_leads_has_a_margin_where_one_does():
    """A prover that leaves it out claims too much, and is refused."""
    parts, model = mutated(70)
    left_out = ("find", "of_right.min(initial=0.5)", "margins[margins > 0].min(initial=0.5)")
    with planted(dtype._RoundedProof, *left_out):
        weights, saved = decided(model, parts, "real")
    assert saved["verdict"] == "PROVED" and saved["harmless_differences"] == 1
    assert saved["margin"] > least_margin(model, parts) and checked(weights, saved)[0] == 1


def unsharp(_):
    """NOT of the third token, but for an input of ones: its first layer takes a mean, by which its second one looks at
    the first position instead. Means with 0 and with 1 at that position may be one number."""
    parts = decompose(Circuit("not", ("x", "y", "z"), (Gate("not", (2,), "o"),), (("o", 3),)))
    model = build(parts.circuit, s=3)
    (a, b), place, at_0, at_2 = model.layers, 5, 6, 7
    with torch.no_grad():
        for x in model.parameters():
            x.zero_()
        model.E[1, 0] = model.P[0, at_0] = model.P[2, at_2] = 1.0
        model.P[:, place] = model.P[:, 3] = 1.0
        a.W_Q[place, 0] = a.W_V[0, 0] = a.W_O[0, 4] = b.W_Q[4, 0] = b.W_Q[place, 1] = b.W_V[0, 0] = 1.0
        a.W_K[at_0, 0], b.W_K[at_0, 0], b.W_K[at_0, 1], b.W_K[at_2, 1] = 0.25, 256.0, -208.0, 40.0
        b.W_V[at_0, 0], b.W_O[0, 3] = -5.0, -1.0
    return parts, model


HULL = "rows.append(self._hull([row, *map(rows.pop, reversed(near))]))"
ONE_ROW, FIRST_ROW = (("_different", HULL, f"rows += [row] * (not {which})") for which in ("rows", "near"))
SEEN = [
    ("real", mutated, 5, Chain, *ONE_ROW),
    *((reading, unsharp, 0, Chain, *FIRST_ROW) for reading in ("real", "float32", "float16", "tf32")),
    ("real", mutated, 5, Balls, "mixed", "(share.lower(), share.upper())", "(share.lower(),)"),
    ("real", mutated, 5, Balls, "retrieved", "high / (1 + high)", "low / (1 + low)"),
    ("bits", near, 209, Chain, *ONE_ROW),
    ("bits", near, 155, Bits, "retrieved", " and self.is_alive(alive[0][1])", ""),
    ("bits", near, 155, Bits, "between", "min(numbers), max(numbers)", "max(numbers), max(numbers)"),
]


@pytest.mark.parametrize("number", range(len(SEEN)))
def test_a_fault_of_the_checker_accepts_a_wrong_chain(number):
    """A proof of the built model, moved to one that is wrong."""
    reading, drawn_by, seed, *fault = SEEN[number]
    parts, model = drawn_by(seed, "real") if drawn_by is near else drawn_by(seed)
    _, saved = decided(build(parts.circuit, s=3), parts, reading)
    saved["margin"] = 1e-9
    assert not computes(model, parts, reading) and checked(as_bytes(model), saved)[0] != 0
    with planted(*fault):
        assert checked(as_bytes(model), saved)[0] == 0


def leaves_its_ball(seed):
    """Whether a mean of drawn values by drawn scores is outside what is said of all scores and values in balls."""
    draw, at = random.Random(seed), Balls()
    scores = [arb(draw.uniform(-9, -2), draw.choice([0, 0.1])) for _ in range(draw.randrange(1, 4))] + [arb(0, 0.1)]
    values = [arb(draw.uniform(-1, 1), draw.choice([0, 0.2])) for _ in scores]
    best, share = at.retrieved(scores, at.any_of(values))
    ball = at.mixed(values[best], share)
    for _ in range(20):
        points = [[x.mid() + x.rad() * draw.choice([-1, 1]) for x in row] for row in (scores, values)]
        if not ball.overlaps(at.mean(*points)):
            return True
    return False


def test_means_are_in_their_balls():
    faults = [("retrieved", "high / (1 + high)", "low / (1 + low)"),
              ("mixed", "(share.lower(), share.upper())", "(share.lower(),)"),
              ("mixed", "(value.upper(), values.upper())", "(value.lower(), values.upper())")]  # fmt: skip
    assert not any(map(leaves_its_ball, range(40)))
    for fault in faults:
        with planted(Balls, *fault):
            assert any(map(leaves_its_ball, range(40)))


def test_one_position_is_looked_at_whatever_the_tokens_are():
    """In constant bits: several, none, or one that only some tokens show, are not followed."""
    at, dead, alive = Bits(2), -(4**2 - 1), 0
    assert at.retrieved([(dead, dead), (alive, alive + 1)], None) == (1, 0)
    for row in ([(dead, alive), (alive, alive)], [(alive, alive)] * 2, [(dead, dead)], [(dead, alive), (dead, dead)]):
        with pytest.raises(Refusal):
            at.retrieved(row, None)


# ---- faults in the prover


def faulty_weights(parts):
    """The second neuron of the gate reads too little."""
    model = build(parts.circuit, s=3)
    with torch.no_grad():
        model.both[1].b_1[1] += 1.0
    return model


PROVER_FAULTS = [
    ("bits", steps.Steps, "_distance", "is_right &= token == gates.value(tokens)", "is_right &= token == token"),
    ("real", dtype._RoundedProof, "find", "margins, of_right = steps.margins(self.circuit)",
     "margins, of_right = np.abs(steps.margins(self.circuit))"),
    ("float32", dtype._RoundedProof, "find", "margins, of_right = steps.margins(self.circuit)",
     "margins, of_right = np.abs(steps.margins(self.circuit))"),
    ("bfloat16", dtype._RoundedProof, "find", "margins, of_right = steps.margins(self.circuit)",
     "margins, of_right = np.abs(steps.margins(self.circuit))"),
    ("tf32", dtype._RoundedProof, "find", "margins, of_right = steps.margins(self.circuit)",
     "margins, of_right = np.abs(steps.margins(self.circuit))"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PROVER_FAULTS)))
def test_a_fault_in_the_prover_is_found_by_the_checker(number):
    reading, owner, name, right, wrong = PROVER_FAULTS[number]
    parts = decompose(Circuit("xor", ("x", "y"), (Gate("xor", (0, 1), "z"),), (("z", 2),)))
    model = faulty_weights(parts)
    assert not computes(model, parts, reading)
    with planted(owner, name, right, wrong), mock.patch.object(decide, "_compared", lambda finding, *_: finding):
        weights, saved = decided(model, parts, reading)
    assert saved["verdict"] == "PROVED" and checked(weights, saved)[0] == 1


@pytest.mark.parametrize("reading", READINGS)
def test_a_wrong_decomposition_and_a_wrong_unrolling_are_found(reading):
    """What the prover would say without its look at both."""
    parts = decompose(Circuit("nor", ("x", "y"), (Gate("nor", (0, 1), "z"),), (("z", 2),)))
    other = replace(parts, original=Circuit("or", ("x", "y"), (Gate("or", (0, 1), "z"),), (("z", 2),)))
    with (
        mock.patch.object(proof, "wrong_decomposition", lambda parts: None),
        mock.patch.object(dtype, "wrong_decomposition", lambda parts: None),
    ):
        weights, saved = decided(build(parts.circuit, s=3), other, reading)
    assert saved["verdict"] == "PROVED" and checked(weights, saved)[0] == 1
    unrolling = unroll(from_regex("0*1", "01"), 3)
    lied = replace(unrolling, automaton=replace(unrolling.automaton, accepting=frozenset({0})))
    parts = decompose(unrolling.circuit)
    with mock.patch("verify.tasks.circuit.language.task.wrong_position", lambda unrolling: None):
        weights, saved = decided(build(parts.circuit, s=3), parts, reading, lied)
    assert saved["verdict"] == "PROVED" and checked(weights, saved)[0] == 1 and not is_the_language(saved)


@pytest.mark.parametrize("reading", ["real", "float32", "bfloat16"])
def test_a_prover_that_finds_right_steps_wrong_is_found(reading):
    """It shows no margin, and takes what a run computes for what it should not be."""
    parts = decompose(Circuit("and", ("x", "y"), (Gate("and", (0, 1), "z"),), (("z", 2),)))
    owner, margins = dtype._RoundedProof, "margins, of_right = steps.margins(self.circuit)"
    with (
        planted(owner, "find", margins, "margins, of_right = -np.abs(steps.margins(self.circuit))"),
        planted(owner, "_run", "computed != right[:, 1:]", "computed == right[:, 1:]"),
        mock.patch.object(owner, "_reachable", lambda self, faults: ((next(faults), [0, 0]), [[0, 0]])),
    ):
        weights, saved = decided(build(parts.circuit, s=2), parts, reading)
    assert saved["verdict"] == "REFUTED" and checked(weights, saved)[0] == 1


@pytest.mark.parametrize("seeds", first(1, [range(2), range(2, 100)]), ids=str)
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.deep
def test_wrong_steps_hold_where_a_run_is_wrong(reading, seeds):
    """Refutations of mutated weights; the same step of other weights only where the oracle finds it wrong, too."""
    held = refused = 0
    for seed in seeds:
        rng, parts = drawn(seed)
        for _ in range(3):
            model = build(parts.circuit, s=3)
            with torch.no_grad():
                mutate(model, rng)
                mutate(model, rng)
            weights, saved = decided(model, parts, reading)
            if saved["verdict"] != "REFUTED":
                continue
            code = checked(weights, saved)[0]
            assert code in (0, NOT_CHECKABLE) and not computes(model, parts, reading)
            held += code == 0
            if code == 0:
                case = saved["counterexample"]
                for more in ({"margin": saved["margin"] - 0.5}, {"margin": 0.0}, {"inputs_covered": "2"}):
                    assert checked(weights, saved | more)[0] == 1 or saved["margin"] == more.get("margin")
                for name in ("expected", "predicted", "computed"):
                    flipped = saved | {"counterexample": case | {name: 1 - case[name]}}
                    assert checked(weights, flipped)[0] == 1
                assert checked(as_bytes(build(parts.circuit, s=3)), saved)[0] == 1
                refused += 1
    assert held and refused


def test_a_step_without_a_token():
    """A softmax is 0/0: so it is in a run, and not of weights where it is not."""
    parts = decompose(Circuit("and", ("x", "y"), (Gate("and", (0, 1), "z"),), (("z", 2),)))
    weights, saved = decided(build(parts.circuit, s=1, as_printed=True), parts, "bits")
    case = saved["counterexample"]
    assert saved["margin"] is None and checked(weights, saved) == (0, "REFUTED")
    assert checked(weights, saved | {"margin": -0.5})[0] == 1
    for name, value in (("computed", 0), ("predicted", 1), ("expected", 1 - case["expected"]), ("kind", "not")):
        assert checked(weights, saved | {"counterexample": case | {name: value}})[0] == 1
    other = build(parts.circuit, s=2)
    moved = saved | {"parameters": saved["parameters"] | {"s": 2, "precision": "s2"}}
    assert checked(as_bytes(other), moved)[0] != 0


def test_what_is_beyond_it_is_not_checkable():
    parts = decompose(Circuit("and", ("x", "y"), (Gate("and", (0, 1), "z"),), (("z", 2),)))
    weights, saved = decided(build(parts.circuit, s=2), parts, "bits")
    del saved["program"]
    assert checked(weights, saved)[0] == NOT_CHECKABLE
