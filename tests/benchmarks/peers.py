"""Writes docs/benchmarks.md: proofs beside enumeration, a MILP solver and the products of the weights, all in one run.

python -m tests.benchmarks.peers [--quick | --write] [--lirpa PYTHON] [--modules DIR]

z3-solver and cvc5 must be installed; auto_LiRPA in an environment of its own (solvers.py), else its rows are left out.
"""

import argparse
import datetime
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp

from constructions import inventory_counting, relation_counting
from constructions.checkpoint import as_bytes, load
from constructions.circuit_simulation import build
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.count01 import documents
from constructions.modular import clock
from tests.benchmarks import solvers
from verify.checker.fields import check
from verify.count01 import certify as certify_count01
from verify.frame.decide import certify as decide
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.circuit.proof import certify as certify_circuit
from verify.tasks.count01.task import PromptDomain
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.runs import all_sequences, run_margins, runner

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
MODULES = "## Any module"  # where the section of module_peers.py begins
BIG = 1e4  # of a neuron in a MILP
DATA = Path(__file__).parents[1] / "data"
TRAINED = {  # tests/data, and the budget where not all is decided
    "lin_sftm_T8_L5_d32_p32": 30.0,
    "lin_T8_L5_d16_p16": 30.0,
    "lin_T16_L8_d32_p32": 10.0,
    "lin_T32_L10_d64_p64": 60.0,
}


def seconds(function, repeats=3):
    """Median CPU seconds of a call, after one that loads what it needs where there are several."""
    times = []
    if repeats > 1:
        function()
    for _ in range(repeats):
        started = time.process_time()
        function()
        times.append(time.process_time() - started)
    return statistics.median(times)


def enumeration(module):
    """Runs the module on all sequences."""
    run = runner(module, None)
    return sum(
        float(run_margins(run, batch, module.first_count).min() <= 0) for batch in all_sequences(module.T, module.L)
    )


def by_milp(module):
    """HiGHS on every query token, count and other class: counts of tokens as integers, a binary for each neuron.

    In floats and without margin for rounding: what a general solver finds, no proof.
    """
    T, L, p = module.T, module.L, module.W_2.shape[0]
    E, W_Q, W_K, W_1, b_1, W_2, b_2 = (
        getattr(module, name).detach().double().numpy() for name in ("E", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")
    )
    V, scores, least = E @ W_1, (E @ W_Q) @ (E @ W_K).T / math.sqrt(module.d), math.inf
    for t in range(T):
        for k in range(1, L + 1):
            # variables: counts (T), h (p), on (p); h = ReLU(base + sum of n_s score_ts V_s)
            H, base = scores[t][:, None] * V, V[t] + b_1
            zero, one = np.zeros((p, p)), np.eye(p)
            rows = [
                LinearConstraint(np.hstack([H.T, -one, zero]), -np.inf, -base),  # h >= z
                LinearConstraint(np.hstack([-H.T, one, BIG * one]), -np.inf, base + BIG),  # h <= z + BIG (1 - on)
                LinearConstraint(np.hstack([np.zeros((p, T)), one, -BIG * one]), -np.inf, 0.0),  # h <= BIG on
                LinearConstraint(np.hstack([np.ones((1, T)), np.zeros((1, 2 * p))]), L, L),
            ]
            low, high = np.zeros(T + 2 * p), np.concatenate([np.full(T, L), np.full(p, np.inf), np.ones(p)])
            low[t] = high[t] = k
            whole = np.concatenate([np.ones(T), np.zeros(p), np.ones(p)])
            for c in range(len(b_2)):
                right = k - module.first_count
                if c == right:
                    continue
                cost = np.concatenate([np.zeros(T), W_2[:, right] - W_2[:, c], np.zeros(p)])
                found = milp(cost, constraints=rows, integrality=whole, bounds=Bounds(low, high))
                least = min(least, found.fun + b_2[right] - b_2[c])
    return least


def products(module):
    """One product E E^T and one E W_1: what no proof can do without."""
    E, W_1 = (x.detach().double().numpy() for x in (module.E, module.W_1))
    return E @ E.T, E @ W_1


def own_products(module):
    """The matrix products of the scores and of the neurons."""
    E, W_Q, W_K, W_1 = (x.detach().double().numpy() for x in (module.E, module.W_Q, module.W_K, module.W_1))
    return (E @ W_Q) @ (E @ W_K).T, E @ W_1


def products_with_positions(module):
    """The matrix products of the scores, of what they mix and of the neurons, at L = T."""
    W = {name: value.detach().double().numpy() for name, value in module.named_parameters()}
    E = W["E"]
    scores = W["A"] if "A" in W else (E @ W["W_Q"]) @ (E @ W["W_K"]).T
    return (scores @ E) @ W["W_1"]


def random_gates(number):
    """A circuit of so many gates with two random inputs each, any of those before."""
    rng, inputs = random.Random(number), tuple(f"x{i}" for i in range(20))
    gates = []
    for i in range(number):
        fan_in = tuple(rng.sample(range(len(inputs) + i), 2))
        gates.append(Gate(rng.choice(("and", "or", "xor", "nand")), fan_in, f"g{i}"))
    return Circuit("random", inputs, tuple(gates), (("z", len(inputs) + number - 1),))


def multiplier(bits):
    """Multiplies two numbers: rows of full adders."""
    gates, n = [], 2 * bits

    def gate(kind, *fan_in):
        gates.append(Gate(kind, fan_in, f"g{len(gates)}"))
        return n + len(gates) - 1

    total, outputs = [gate("and", i, bits) for i in range(bits)], []
    for j in range(1, bits):
        outputs.append(total.pop(0))
        carry, row = None, []
        for i in range(bits):
            terms = [
                x for x in (gate("and", i, bits + j), total[i] if i < len(total) else None, carry) if x is not None
            ]
            one = gate("xor", *terms[:2]) if len(terms) > 1 else terms[0]
            carry = gate("and", *terms[:2]) if len(terms) > 1 else None
            if len(terms) == 3:
                carry = gate("or", carry, gate("and", one, terms[2]))
                one = gate("xor", one, terms[2])
            row.append(one)
        total = [*row, *([carry] if carry is not None else [])]
    inputs = tuple(f"{name}{i}" for name in "ab" for i in range(bits))
    return Circuit("multiplier", inputs, tuple(gates), tuple((f"m{i}", x) for i, x in enumerate(outputs + total)))


def exponent(sizes, times):
    """The slope of a line through logarithms of sizes and times."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def peers():
    """Rows of the first table: seconds of the proof, then of the others as multiples of it."""
    for name, module in (
        ("dot, T = 8, L = 5", relation_counting.dot(T=8, L=5)),
        ("dot, T = 10, L = 6", relation_counting.dot(T=10, L=6)),
    ):
        proof = seconds(lambda module=module: certify(module), 7)
        others = [seconds(lambda f=f, m=module: f(m), 1) for f in (enumeration, by_milp)]
        yield name, proof, *others, seconds(lambda m=module: products(m), 7), *checked(module)
    for T, L in ((100, 100), (300, 100), (1000, 1000)):
        module = relation_counting.dot(T=T, L=L)
        proof = seconds(lambda module=module: certify(module))
        rest = checked(module) if T < 1000 else (None,)
        yield f"dot, T = d = {T}, L = {L}", proof, None, None, seconds(lambda m=module: products(m), 7), *rest


def large():
    """Rows of the table at T = L = d = 316: seconds of the proof, and its multiple of the products of the weights."""
    builders = {name.replace("_", "+"): getattr(inventory_counting, name) for name in ("lin", "lin_sftm", "dot_sftm")}
    builders |= {"dot": relation_counting.dot, "bos": relation_counting.bos}
    for name, made in builders.items():
        module = made(T=316, L=316, d=316)
        proof = seconds(lambda m=module: certify(m))
        yield name, proof, proof / seconds(lambda m=module: products_with_positions(m), 7)


def trained():
    """Rows of the table of trained models: seconds, the time of enumeration as a multiple, and what was found."""
    for name, budget in TRAINED.items():
        module = load(DATA / f"trained_{name}.safetensors")
        found = []
        proof = seconds(lambda m=module, b=budget, f=found: f.append(certify(m, budget=b)), 5 if module.T < 10 else 1)
        least, most = found[-1].error_share or (0, 0)
        other = seconds(lambda m=module: enumeration(m), 5) if module.T**module.L < 1 << 20 else None
        share = f"{float(least):.4f}" if least == most else f"{float(least):.4f} to {float(most):.4f}"
        yield name, proof, other, found[-1].verdict.value, share


def checked(module):
    """Seconds of the independent checker."""
    weights = as_bytes(module, claim=None, construction=None)
    certificate = certify(module).about(weights).to_json().encode()
    return (seconds(lambda: check(weights, certificate), 1),)


def growth():
    """Rows of the second table: what grows, over which sizes, the times, and the exponent."""
    counting = {
        "T, dot at L = 20, d = T": ((200, 400, 800), lambda T: relation_counting.dot(T=T, L=20)),
        "L, dot at T = 200": ((100, 200, 400), lambda L: relation_counting.dot(T=200, L=L)),
        "d, dot at T = 50, L = 20": ((400, 800, 1600), lambda d: relation_counting.dot(T=50, L=20, d=d)),
        "T, dot+sftm at L = 10, d = p = T": ((50, 100, 200), lambda T: inventory_counting.dot_sftm(T=T, L=10)),
    }
    for what, (sizes, made) in counting.items():
        modules = [made(size) for size in sizes]
        yield what, sizes, [seconds(lambda m=m: certify(m)) for m in modules]
    circuits = [decompose(multiplier(bits)) for bits in (8, 16, 32)]
    sizes = [len(each.circuit.gates) for each in circuits]
    models = [build(each.circuit, s=8) for each in circuits]
    pairs = list(zip(models, circuits, strict=True))
    yield "gates, multipliers", sizes, [seconds(lambda p=pair: certify_circuit(*p)) for pair in pairs]
    drawn = [decompose(random_gates(number)) for number in (1000, 4000, 16000)]
    pairs = [(build(each.circuit, s=2), each) for each in drawn]
    yield "gates, random", (1000, 4000, 16000), [seconds(lambda p=pair: certify_circuit(*p), 1) for pair in pairs]
    clocks = [(clock(P=P, frequencies=(1, 6, 43)), P) for P in (101, 201, 401, 801)]
    yield (
        "P, clock of 3",
        (101, 201, 401, 801),
        [seconds(lambda p=pair: decide(ModularAddition(*p)), 3) for pair in clocks],
    )
    prompts = [documents(N=N) for N in (3, 5, 8)]
    times = [seconds(lambda m=model: certify_count01(m, "majority-ones", PromptDomain()), 3) for model in prompts]
    yield "N, count01", (3, 5, 8), times


def two_workers():
    """Wall seconds of `verify frontier` with one worker and with two, each the least of three; None if others work."""
    if os.getloadavg()[0] > 0.6 * (os.cpu_count() or 1):
        return None
    found = {"1": float("inf"), "2": float("inf")}
    for _ in range(3):
        for number in found:
            with tempfile.TemporaryDirectory() as place:
                argv = ["frontier", "histogram", "--model", "lin", "--T", "10,11,12,13", "--L", "5"]
                started = time.perf_counter()
                command = [sys.executable, "-m", "verify", *argv, "--workers", number, "--save", place]
                subprocess.run(command, check=True, capture_output=True)
                found[number] = min(found[number], time.perf_counter() - started)
    return list(found.values())


def page(lirpa=None):
    def cell(x, proof=None):
        return "" if x is None else f"{x:.2g} s" if proof is None else f"{x / proof:.2g}"

    lines = ["| model | proof | enumeration | HiGHS MILP | E E^T and E W_1 | checker |", "|---|---|---|---|---|---|"]
    for name, proof, *others in peers():
        lines.append(f"| {name} | {cell(proof)} | {' | '.join(cell(x, proof) for x in others)} |")
    learned = ["| file | proof | enumeration | verdict | wrong share |", "|---|---|---|---|---|"]
    for name, proof, other, verdict, share in trained():
        learned.append(f"| {name} | {cell(proof)} | {cell(other, proof)} | {verdict} | {share} |")
    module = relation_counting.dot(T=1000, L=1000)
    ratio = seconds(lambda: certify(module)) / seconds(lambda: own_products(module), 7)
    sized = ["| model | proof | products |", "|---|---|---|"]
    sized += [f"| {name} | {cell(proof)} | {times:.1f} |" for name, proof, times in large()]
    grown = ["| what grows | sizes | seconds | exponent |", "|---|---|---|---|"]
    for what, sizes, times in growth():
        shown = ", ".join(f"{x:.2g}" for x in times)
        grown.append(f"| {what} | {', '.join(map(str, sizes))} | {shown} | {exponent(sizes, times):.1f} |")
    both = two_workers()
    frontier = "not measured, since the machine was busy with other work"
    if both is not None:
        frontier = f"{both[0]:.1f} s with one worker, {both[1]:.1f} s with two: {both[0] / both[1]:.2f} times as fast"
    processor = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), ": ?")
    machine = f"{os.cpu_count()} cores ({processor.split(':')[1].strip()}), one thread for each run"
    versions = f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__.split('+')[0]}"
    today, load = datetime.datetime.now(datetime.UTC).date(), os.getloadavg()[0]
    return f"""# Benchmarks

Written by `python -m tests.benchmarks.peers --write` on {today}: {machine},
load average {load:.1f}; {versions}.
All times are CPU seconds of the work itself, without imports and building; the ratios are of one run.

## Beside other ways

The proof is in seconds, the others are multiples of it. Enumeration runs the module on all T^L sequences. HiGHS solves
a mixed-integer program for each token, count and other class (scipy.optimize.milp), in floats: it proves nothing.
One product E E^T and one E W_1 is the least that a look at the weights costs.

{chr(10).join(lines)}

`dot` at T = L = d = 1000 takes {ratio:.1f} times its own products (E W_Q, E W_K, the scores, E W_1).

At T = L = d = 316, beside the products of scores, mixing and neurons in float64:

{chr(10).join(sized)}

## Other solvers

The same question for each token and how often it occurs: is the right logit above the others whatever the rest is?
z3 and cvc5 answer it in exact numbers, with {solvers.TIMEOUT:g} s for each model; auto_LiRPA's CROWN bounds it on a
box of counts, in float32. The proof answers all of them at once, its own roundings counted.

{chr(10).join(solvers.table(lirpa))}

## Trained models

Files of `tests/data`, wrong on the share of inputs that is given, or between these two where time was up (after 10 and
60 seconds by the clock). Enumeration is a multiple of the proof, as above.

{chr(10).join(learned)}

## Growth

{chr(10).join(grown)}

## Two workers

`verify frontier`: {frontier}.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--lirpa", metavar="PYTHON", help="an interpreter that imports auto_LiRPA")
    parser.add_argument(
        "--modules",
        metavar="DIR",
        help="write the section on any module, too, and without --write it alone; DIR keeps its models",
    )
    parser.add_argument("--quick", action="store_true", help="5 s for each model of a solver, small trained ones alone")
    torch.set_num_threads(1)
    args = parser.parse_args()
    if args.quick:
        solvers.TIMEOUT = 5.0
        TRAINED = dict(list(TRAINED.items())[:2])
    if args.write or not args.modules:
        found = page(args.lirpa)
        if args.write:
            _, head, rest = PAGE.read_text(encoding="utf-8").partition(MODULES)
            PAGE.write_text(f"{found}\n{head}{rest}" if head else found, encoding="utf-8")
        print(json.dumps({"written": PAGE.name}) if args.write else found)
    if args.modules:
        from tests.benchmarks import module_peers

        module_peers.write(PAGE, args.modules)
