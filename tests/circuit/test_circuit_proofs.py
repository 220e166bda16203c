"""The circuit verdicts against enumeration by a naive transformer, published circuits, and planted faults."""

from __future__ import annotations

import random
from unittest import mock

import numpy as np
import pytest
import torch
from models.circuits import EPFL, ISCAS, inputs, mutate, path_of, random_circuit
from models.selection import first
from oracles.circuit import NaiveTransformer, gate_values

from constructions.circuit_simulation import CircuitTransformer, build
from constructions.circuits import machine as runs
from constructions.circuits.circuit import Circuit, Decomposition, Gate, decompose
from constructions.circuits.files import read_circuit
from constructions.circuits.machine import ConstantBitMachine
from constructions.circuits.weights import load_weights, save_weights
from constructions.constant_bits.arithmetic import FixedPoint
from constructions.errors import BadInput
from verify.frame.certificate import READING_BIT_EXACT, Verdict
from verify.frame.clock import Budget
from verify.tasks.circuit.proof import certify, smallest_bits
from verify.tasks.circuit.retrieval import PlacedVectors, addresses, surviving_pairs


def and_not_circuit(rng, n, size):
    """Gates on any earlier node, so that addresses are long and the prompt short."""
    gates = []
    for j in range(size):
        kind = rng.choice(["and", "not"])
        gates.append(Gate(kind, tuple(rng.randrange(n + j) for _ in range(2 if kind == "and" else 1)), f"g{j}"))
    return Circuit("random", tuple(f"i{j}" for j in range(n)), tuple(gates), (("o", n + size - 1),))


def is_right(model, circuit):
    """Whether the naive transformer computes every gate on every input."""
    gates = [(gate.kind, gate.fan_in) for gate in circuit.gates]
    naive = NaiveTransformer(model.state_dict(), model.n, model.T, model.s)
    return all(naive.generate(bits) == gate_values(gates, bits) for bits in inputs(model.n))


def check_refutation(certificate, model, circuit):
    """The counterexample fails in the naive transformer, at the gate it names and at none before."""
    example = certificate.counterexample
    bits = [int(digit) for digit in example["input"]]
    gate = model.n + example["step"] - 1
    tokens = NaiveTransformer(model.state_dict(), model.n, model.T, certificate.parameters["s"]).generate(bits)
    wanted = gate_values([(gate.kind, gate.fan_in) for gate in circuit.gates], bits)
    assert tokens[:gate] == wanted[:gate]
    assert tokens[gate] != wanted[gate] == example["expected"]
    assert tokens[gate] == (-1 if example["computed"] is None else example["computed"])
    assert circuit.name_of(gate) == example["gate"]


@pytest.mark.parametrize("part", first(1, range(6)))
@pytest.mark.parametrize("seeds", first(1, [range(7), range(7, 15), range(15, 25)]))
def test_verdicts_equal_enumeration_by_a_naive_transformer(part, seeds):
    seen = {verdict: 0 for verdict in Verdict}
    for seed in seeds:
        rng = random.Random(f"{part} {seed}")
        decomposition = decompose(random_circuit(rng, rng.randrange(1, 4), rng.randrange(1, 5)))
        model = build(decomposition.circuit, s=rng.choice([1, 2, 2, 2, 3]))
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            mutate(model, rng)
        certificate = certify(model, decomposition)
        seen[certificate.verdict] += 1
        assert (certificate.verdict is Verdict.PROVED) == is_right(model, decomposition.circuit), seed
        if certificate.verdict is Verdict.REFUTED:
            check_refutation(certificate, model, decomposition.circuit)
    assert seen[Verdict.UNKNOWN] == 0
    assert seen[Verdict.PROVED] and seen[Verdict.REFUTED]


@pytest.mark.deep
@pytest.mark.parametrize("part", range(20))
def test_verdicts_equal_enumeration_at_length(part):
    for seed in range(300):
        rng = random.Random(f"deep {part} {seed}")
        decomposition = decompose(random_circuit(rng, rng.randrange(1, 6), rng.randrange(1, 8)))
        model = build(decomposition.circuit, s=rng.choice([1, 2, 2, 3, 4]))
        for _ in range(rng.choice([1, 1, 2, 5])):
            mutate(model, rng)
        certificate = certify(model, decomposition)
        tokens = ConstantBitMachine(model).generate(np.array(inputs(model.n)))
        right = all(
            row == decomposition.circuit.evaluate(bits)
            for row, bits in zip(tokens.tolist(), inputs(model.n), strict=True)
        )
        assert (certificate.verdict is Verdict.PROVED) == right, seed


@pytest.mark.parametrize("models", first(1, [15, 40]))
def test_random_weights_run_as_in_the_naive_transformer(models):
    """The machine's shortcuts (equal streams, cached keys, skipped zeros) change nothing, 0/0 included."""
    seen = set()
    for seed in range(models):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        model = CircuitTransformer(n=rng.randrange(1, 4), T=rng.randrange(1, 5), s=rng.choice([1, 2, 3]))
        for weights in model.state_dict().values():
            weights.copy_(torch.randint(-6, 7, weights.shape) / 4 * (torch.rand(weights.shape) < rng.random()))
        naive = NaiveTransformer(model.state_dict(), model.n, model.T, model.s)
        wanted = [naive.generate(bits) for bits in inputs(model.n)]
        assert ConstantBitMachine(model).generate(np.array(inputs(model.n))).tolist() == wanted
        seen |= {token for row in wanted for token in row[model.n :]}
    assert seen == {-1, 0, 1}


def test_one_pass_over_right_tokens_is_the_chain_of_thought_up_to_its_first_wrong_token():
    """Of built weights and of changed ones: the same tokens and g, 0/0 included."""
    seen, passed = set(), 0
    for seed in range(60):
        rng = random.Random(seed)
        circuit = decompose(random_circuit(rng, rng.randrange(1, 4), rng.randrange(1, 6))).circuit
        model = build(circuit, s=rng.choice([1, 2, 3, 8]))
        for _ in range(rng.choice([0, 1, 2, 4])):
            mutate(model, rng)
        machine, prompts = ConstantBitMachine(model), inputs(model.n)
        right = np.array([circuit.evaluate(bits) for bits in prompts])
        found = machine.after_right(right)
        if found is None:
            continue
        passed += 1
        tokens, g = (whole[:, model.n :] for whole in machine.generate_with_g(np.array(prompts)))
        for i, due in enumerate(right[:, model.n :]):
            until = next((m + 1 for m in range(len(due)) if tokens[i, m] != due[m]), len(due))
            assert found[0][i, :until].tolist() == tokens[i, :until].tolist()
            assert np.array_equal(found[1][i, :until], g[i, :until], equal_nan=True)
            seen |= set(tokens[i, :until].tolist())
    assert seen == {-1, 0, 1} and passed > 40


def failing():
    """A chain of gates in one bit, which is refuted by running an input."""
    gates = tuple(Gate("and", (i, i + 1), f"g{i}") for i in range(40))
    decomposition = decompose(Circuit("chain", ("a", "b"), gates, (("o", 41),)))
    return build(decomposition.circuit, s=1), decomposition


def test_a_clock_ends_the_run_that_shows_a_fault_within_its_layers():
    """At the look before the gates or a layer: until then the verdict is open, and after it is the refutation."""
    model, decomposition = failing()
    whole = certify(model, decomposition)
    found = [certify(model, decomposition, budget=Budget.counting(steps)) for steps in range(1, 30)]
    ended = [one for one in found if "while an input that shows it was run" in (one.reason or "")]
    assert whole.verdict is Verdict.REFUTED and len(ended) == 1 + len(model.layers)
    assert {one.verdict for one in found} == {Verdict.UNKNOWN, Verdict.REFUTED}
    assert all(one.counterexample == whole.counterexample for one in found if one.verdict is Verdict.REFUTED)


def test_a_fault_that_no_run_shows_is_no_refutation():
    model, decomposition = failing()

    def as_if_right(machine, right, between):
        return right[:, machine.n :], right[:, machine.n :].astype(float)

    with mock.patch.object(ConstantBitMachine, "after_right", as_if_right), pytest.raises(AssertionError, match="show"):
        certify(model, decomposition)


@pytest.mark.parametrize("seeds", first(1, [range(20), range(20, 60)]))
def test_random_weights_are_judged_right(seeds):
    decided = 0
    for seed in seeds:
        rng = random.Random(seed)
        torch.manual_seed(seed)
        circuit = and_not_circuit(rng, 2, 2)
        decomposition = Decomposition(circuit, circuit, (0, 1, 2, 3))
        model = CircuitTransformer(n=2, T=2, s=2)
        for weights in model.state_dict().values():
            weights.copy_(torch.randint(-6, 7, weights.shape) / 4 * (torch.rand(weights.shape) < 0.5))
        certificate = certify(model, decomposition)
        decided += certificate.verdict is not Verdict.UNKNOWN
        assert (certificate.verdict is Verdict.PROVED) == is_right(model, circuit)
    assert decided == len(seeds)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("c17", "c432") else pytest.mark.deep) for name in ISCAS + EPFL],
)
def test_published_circuits_are_proved(name):
    circuit = read_circuit(path_of(name))
    model, certificate = smallest_bits(decompose(circuit))
    assert certificate.verdict is Verdict.PROVED
    assert certificate.reading == READING_BIT_EXACT
    assert certificate.inputs_covered == 2 ** len(circuit.inputs)
    assert certificate.extra["smallest_bits"] == 2
    assert certificate.extra["smaller_bits"][0]["verdict"] == "REFUTED"
    assert certificate.parameters["d"] == 3 * model.lanes.k + 6 == model.E.shape[1]


def run_numbers(name, runs):
    """Random pairs of numbers through the transformer: what goes in, and the output bits as numbers."""
    decomposition = decompose(read_circuit(path_of(name)))
    model = build(decomposition.circuit)
    prompts = np.random.default_rng(7).integers(0, 2, (runs, model.n))
    tokens = ConstantBitMachine(model).generate(prompts)
    nodes = [node for _, node in decomposition.circuit.outputs]
    if name == "c6288":
        nodes[-2:] = reversed(nodes[-2:])  # the file declares its two highest bits in the other order

    def number(bits):
        return sum(int(bit) << j for j, bit in enumerate(bits))

    half = model.n // 2
    return [(number(row[:half]), number(row[half : model.n]), number(row[nodes])) for row in tokens]


@pytest.mark.deep
def test_c6288_multiplies():
    results = run_numbers("c6288", 2000)
    assert len(results) == 2000 and all(product == x * y for x, y, product in results)


@pytest.mark.parametrize(("name", "runs"), first(1, [("halfadder", 20), ("adder", 2000)]))
def test_adder_adds(name, runs):
    results = run_numbers(name, runs)
    assert len(results) == runs and all(total == x + y for x, y, total in results)


def planted(model, rng):
    """One fault at a random gate: a bit of an address, its type, or the bit of a position's own number."""
    lanes, weights = model.lanes, model.state_dict()["P"]
    position = rng.randrange(model.n - 1, model.n + model.T - 1)
    kind = rng.choice(["a", "b", "id", "c"])
    if kind == "c":
        weights[position, lanes.c] = 1 - weights[position, lanes.c]
    else:
        lane = getattr(lanes, kind)
        weights[position, rng.randrange(lane.start, lane.stop)] *= -1
    return kind, position


@pytest.mark.parametrize(
    "name, faults",
    [("c17", 12), ("c432", 2)]
    + [
        pytest.param(*case, marks=pytest.mark.deep)
        for case in (
            ("c17", 30),
            ("c432", 12),
            ("ctrl", 4),
            ("c880", 6),
            ("ctrl", 12),
            ("router", 12),
            ("cavlc", 4),
            ("i2c", 4),
        )
    ],
)
def test_planted_faults(name, faults):
    decomposition = decompose(read_circuit(path_of(name)))
    circuit = decomposition.circuit
    refuted = 0
    for seed in range(faults):
        rng = random.Random(f"{name} {seed}")
        model = build(circuit)
        kind, position = planted(model, rng)
        certificate = certify(model, decomposition)
        gate = circuit.gates[position + 1 - model.n]
        if certificate.verdict is Verdict.REFUTED:
            refuted += 1
            example = certificate.counterexample
            bits = [int(digit) for digit in example["input"]]
            node = model.n + example["step"] - 1
            stop = lambda m, tokens: m >= node  # noqa: B023, E731
            tokens = ConstantBitMachine(model).generate(np.array([bits]), watch=stop)[0].tolist()
            wanted = gate_values([(gate.kind, gate.fan_in) for gate in circuit.gates], bits)
            assert tokens[:node] == wanted[:node] and tokens[node] != wanted[node]
            if kind != "id":
                assert example["gate"] == circuit.name_of(position + 1)
        else:
            assert certificate.verdict is Verdict.PROVED
            assert kind == "id" or (kind == "b" and gate.kind == "not") or len(circuit.inputs) <= 16
    assert refuted >= faults // 2


@pytest.mark.deep
def test_every_single_fault_in_c17():
    """Every address bit, type and own number of every gate, judged as the naive transformer runs."""
    decomposition = decompose(read_circuit(path_of("c17")))
    model = build(decomposition.circuit)
    positions = model.state_dict()["P"]
    counts = {verdict: 0 for verdict in Verdict}
    rng = random.Random(0)
    for position in range(model.n + model.T - 1):
        for lane in range(4, model.lanes.d):
            before = float(positions[position, lane])
            positions[position, lane] = 1 - before if lane == model.lanes.c else -before
            certificate = certify(model, decomposition)
            counts[certificate.verdict] += 1
            if certificate.verdict is Verdict.REFUTED and rng.random() < 0.2:
                check_refutation(certificate, model, decomposition.circuit)
            if certificate.verdict is Verdict.PROVED and rng.random() < 0.2:
                assert is_right(model, decomposition.circuit)
            positions[position, lane] = before
    assert counts[Verdict.UNKNOWN] == 0 and counts[Verdict.REFUTED] > 100 and counts[Verdict.PROVED] > 10


def test_a_rare_fault_is_found_by_search():
    """AND of 40 inputs: no random input tells its last gate from the constant 0."""
    gates = [Gate("and", (0, 1), "g1")]
    gates += [Gate("and", (38 + j, j), f"g{j}") for j in range(2, 40)]
    gates.append(Gate("and", (0, 78), "z"))  # the 40th and last gate, node 79
    decomposition = decompose(Circuit("wide", tuple(f"i{j}" for j in range(40)), tuple(gates), (("z", 79),)))
    assert certify(build(decomposition.circuit), decomposition).verdict is Verdict.PROVED
    certificate = certify(build(decomposition.circuit, s=1), decomposition)
    assert certificate.verdict is Verdict.REFUTED and certificate.counterexample["gate"] == "g1"
    model = build(decomposition.circuit)
    model.state_dict()["P"][78, model.lanes.g] = -1.0  # the last gate is 0 whatever it reads
    certificate = certify(model, decomposition)
    assert certificate.counterexample["input"] == "1" * 40 and certificate.counterexample["gate"] == "z"


@pytest.mark.parametrize(
    ("is_late", "told"), [(False, {"inputs": 1024, "all": True}), (True, {"inputs": 256, "all": False})]
)
def test_runs_that_time_did_not_allow_are_not_told(is_late, told):
    """The proof is whole when the time is up, in the first part of the forward runs beside it."""
    now = [0.0]

    def progress(what, done, total):
        now[0] = 100.0 if is_late and what == "forward runs" else 0.0

    circuit = Circuit("ten", tuple(f"i{j}" for j in range(10)), (Gate("and", (0, 9), "z"),), (("z", 10),))
    decomposition = decompose(circuit)
    budget = Budget(30.0, lambda: now[0])
    certificate = certify(build(decomposition.circuit), decomposition, runs=5, budget=budget, progress=progress)
    assert certificate.verdict is Verdict.PROVED and certificate.extra["forward_runs"] == told


def test_a_difference_that_no_input_reaches_is_harmless():
    """x AND NOT x never sees two ones, so that s = 1 is enough for it."""
    gates = (Gate("not", (0,), "n"), Gate("and", (0, 1), "z"))
    decomposition = decompose(Circuit("zero", ("x",), gates, (("z", 2),)))
    model, certificate = smallest_bits(decomposition)
    assert certificate.verdict is Verdict.PROVED and certificate.extra["smallest_bits"] == 1
    assert certificate.extra["harmless_differences"] == 1
    assert is_right(model, decomposition.circuit)


def test_what_only_a_solver_says_is_not_proved():
    """x1..x20 and their negations: 0 by a wide cone, which is neither enumerated nor taken on trust."""
    n = 20
    gates = [Gate("and", (0, 1), "g1")] + [Gate("and", (n + j - 2, j), f"g{j}") for j in range(2, n)]
    gates += [Gate("not", (0,), "n"), Gate("and", (n + len(gates) - 1, n + len(gates)), "z")]
    decomposition = decompose(
        Circuit("contradiction", tuple(f"i{j}" for j in range(n)), tuple(gates), (("z", n + len(gates) - 1),))
    )
    model = build(decomposition.circuit)
    model.state_dict()["P"][-1, model.lanes.g] = -2.0  # z is 0 always, which it is
    certificate = certify(model, decomposition)
    assert certificate.verdict is Verdict.UNKNOWN and "SAT solver" in certificate.reason


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_never_proved(value):
    decomposition = decompose(read_circuit(path_of("c17")))
    model = build(decomposition.circuit)
    model.state_dict()["layers.0.W_V"][3, 0] = value
    assert certify(model, decomposition).verdict is Verdict.UNKNOWN


def test_the_printed_proof_fails_at_every_precision():
    """b = 0 for NOT and a = b = 0 for inputs address no position: 0/0."""
    decomposition = decompose(read_circuit(path_of("c17")))
    for s in range(1, 13):
        certificate = certify(build(decomposition.circuit, s=s, as_printed=True), decomposition)
        assert certificate.verdict is Verdict.REFUTED and "0/0" in certificate.counterexample["why"]


@pytest.mark.parametrize("name", first(1, ["ctrl", "c432"]))
def test_layer_scale_would_break_it(name):
    """Keys divided by sqrt(2k), for the scaled scores of Sec. 2.3, leave wrong positions alive."""
    decomposition = decompose(read_circuit(path_of(name)))
    model = build(decomposition.circuit)
    for layer in model.layers:
        layer.W_K.data /= (2 * model.lanes.k) ** 0.5
    assert certify(model, decomposition).verdict is Verdict.REFUTED


@pytest.mark.parametrize("name", first(1, ["c17", "c432"]))
def test_stored_weights_are_what_is_judged(tmp_path, name):
    decomposition = decompose(read_circuit(path_of(name)))
    model = build(decomposition.circuit)
    save_weights(model, tmp_path / "m.safetensors")
    loaded = load_weights(tmp_path / "m.safetensors")
    assert certify(loaded, decomposition).verdict is Verdict.PROVED
    planted(loaded, random.Random(1))
    save_weights(loaded, tmp_path / "m.safetensors")
    assert certify(load_weights(tmp_path / "m.safetensors"), decomposition).verdict is Verdict.REFUTED
    first = (tmp_path / "m.safetensors").read_bytes()
    save_weights(loaded, tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == first
    (tmp_path / "m.safetensors").write_bytes(first[:5000])
    with pytest.raises(BadInput, match="not a readable safetensors"):
        load_weights(tmp_path / "m.safetensors")
    with pytest.raises(BadInput, match="has n="):
        certify(model, decompose(read_circuit(path_of("ctrl"))))


@pytest.fixture
def one_thread():
    """Thousands of small kernels: threads of a busy machine would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("bits", first(1, range(6, 10)))
def test_float32_is_exact_where_the_bound_says(one_thread, bits):
    from bounds.circuit_simulation import exact_in_float32, k, s

    decomposition = decompose(read_circuit(path_of("ctrl")))
    prompts = np.random.default_rng(1).integers(0, 2, (32, 7))
    model = build(decomposition.circuit, s=bits)
    assert exact_in_float32().subs({s: bits, k: model.lanes.k})
    tokens = torch.from_numpy(ConstantBitMachine(model).generate(prompts)).long()
    assert torch.equal(model.generate(torch.from_numpy(prompts)), tokens)
    values = model(tokens[:, :-1])
    assert torch.equal(values[:, model.n - 1 :], tokens[:, model.n :].float())  # equal, not close


def test_hashed_pairs_equal_the_table_of_pairs():
    from verify.tasks.circuit.retrieval import _table

    hashed = 0
    for seed in range(30):
        rng = random.Random(seed)
        circuit = and_not_circuit(rng, 3, 40)
        model = build(circuit, s=rng.choice([1, 2, 3]))
        for _ in range(seed % 4):
            mutate(model, rng)
        machine = ConstantBitMachine(model)
        stream = machine.embed(np.zeros(machine.positions, int), np.arange(machine.positions))
        layer = machine.layers[seed % 2]
        position = np.arange(machine.positions)
        queries, keys = PlacedVectors(layer.queries(stream), position), PlacedVectors(layer.keys(stream), position)
        hashed += addresses(machine.bits, queries.vectors, keys.vectors) is not None
        fast = set(zip(*map(np.ndarray.tolist, surviving_pairs(machine.bits, queries, keys)), strict=True))
        assert fast == set(zip(*map(np.ndarray.tolist, _table(machine.bits, queries, keys)), strict=True))
        if seed % 4 == 0:
            assert len(fast) == machine.positions
    assert hashed > 10


def test_methods():
    decomposition = decompose(read_circuit(path_of("c17")))
    good, bad = build(decomposition.circuit), build(decomposition.circuit, s=1)
    assert certify(good, decomposition, method="exhaustive").verdict is Verdict.PROVED
    assert certify(bad, decomposition, method="exhaustive").verdict is Verdict.REFUTED
    assert certify(good, decomposition, method="sampled").verdict is Verdict.UNKNOWN
    assert certify(bad, decomposition, method="sampled").verdict is Verdict.REFUTED
    with pytest.raises(BadInput, match="method="):
        certify(good, decomposition, method="magic")
    wide = decompose(read_circuit(path_of("c432")))
    with pytest.raises(BadInput, match="2\\^36"):
        certify(build(wide.circuit), wide, method="exhaustive")


def test_a_circuit_without_inputs_is_judged_after_both_first_tokens():
    """Its runs of all inputs once left out the first token 1, on which the proof refuted."""
    gates = (Gate("one", (), "a"), Gate("nand", (0, 0), "b"))
    decomposition, wrong = decompose(Circuit("constant", (), gates, (("o", 1),))), set()
    for seed in range(20):
        model = build(decomposition.circuit)
        mutate(model, random.Random(seed))
        found = {method: certify(model, decomposition, method=method) for method in ("certified", "exhaustive")}
        assert {len({c.verdict for c in found.values()}), len({c.inputs_covered for c in found.values()})} == {1}, seed
        if found["exhaustive"].verdict is Verdict.REFUTED:
            check_refutation(found["exhaustive"], model, decomposition.circuit)
            wrong.add(found["exhaustive"].counterexample["input"])
    assert wrong == {"0", "1"}


@pytest.mark.deep
def test_certificate_of_ten_thousand_gates():
    decomposition = decompose(and_not_circuit(random.Random(0), 64, 10_000))
    model = build(decomposition.circuit)
    assert certify(model, decomposition).verdict is Verdict.PROVED


@pytest.mark.deep
def test_two_hundred_thousand_gates():
    decomposition = decompose(and_not_circuit(random.Random(0), 64, 200_000))
    assert certify(build(decomposition.circuit), decomposition).verdict is Verdict.PROVED
    model = build(decomposition.circuit)
    model.state_dict()["P"][5_000, model.lanes.a.start + 3] *= -1
    assert certify(model, decomposition).verdict is not Verdict.PROVED


@pytest.mark.deep
def test_forward_run_of_ten_thousand_gates():
    circuit = and_not_circuit(random.Random(0), 64, 10_000)
    prompts = np.random.default_rng(0).integers(0, 2, (64, 64))
    tokens = ConstantBitMachine(build(circuit)).generate(prompts)
    gates = [(gate.kind, gate.fan_in) for gate in circuit.gates]
    assert all(row.tolist() == gate_values(gates, row[:64].tolist()) for row in tokens[:4])


@pytest.mark.parametrize("seeds", first(1, [range(90), range(90, 3000)]))
def test_alive_pairs_by_lanes_are_those_of_all_pairs(seeds):
    """Random vectors, vectors of few values, and addresses; in groups by lanes, and one by one."""
    alive = skipped = 0
    for seed in seeds:
        rng = np.random.default_rng([11, seed])
        bits, N, width = FixedPoint(int(rng.integers(1, 5))), int(rng.integers(1, 40)), int(rng.integers(1, 9))
        most = bits.largest
        if seed % 3 == 0:
            queries, keys = rng.integers(-most, most + 1, (2, N, width))
        elif seed % 3 == 1:
            queries, keys = rng.choice([-most, most, 0, bits.one], (2, N, width))
        else:
            signs = 1 - 2 * rng.integers(0, 2, (2, N, width))
            queries = np.stack([most * signs[0], np.full((N, width), most)], 2).reshape(N, -1)
            keys = np.stack([bits.one * signs[1], np.full((N, width), -bits.one)], 2).reshape(N, -1)
        queries, keys = queries.astype(bits.dtype), keys.astype(bits.dtype)
        found, due = runs.alive_pairs(bits, queries, keys), runs.alive_by_blocks(bits, queries, keys)
        if found is None:
            skipped += 1
            continue
        assert all(np.array_equal(x, y) for x, y in zip(found, due, strict=True)), seed
        alive += len(found[0])
    assert alive > 1000 and not skipped


def test_addresses_take_linear_work():
    """Of 2^13 addresses only those pairs of groups are looked at that agree so far."""
    bits, N = FixedPoint(2), 1 << 13
    signs = 1 - 2 * (np.arange(N)[:, None] >> np.arange(13) & 1)
    queries = np.stack([bits.largest * signs, np.full((N, 13), bits.largest)], 2).reshape(N, -1).astype(bits.dtype)
    keys = np.stack([bits.one * signs, np.full((N, 13), -bits.one)], 2).reshape(N, -1).astype(bits.dtype)
    with mock.patch.object(runs, "PASS_SURVIVORS", 4 * N):  # more pairs at once are given up
        query, key, _ = runs.alive_pairs(bits, queries, keys)
    assert query.tolist() == key.tolist() == list(range(N))
