"""What `verify circuit` and `verify language` share: arguments, progress, output, and saving."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from verify.arithmetic.outward import below
from verify.certificate import Verdict
from verify.report.console import say_written

if TYPE_CHECKING:
    from collections.abc import Callable

    from constructions.circuit_simulation import CircuitTransformer
    from constructions.circuits.circuit import Decomposition
    from verify.arithmetic.formats import Format
    from verify.arithmetic.readings import Real, Rounded
    from verify.certificate import Certificate
    from verify.report.certificate import Fact

DEFAULT_RUNS = 64
MOST_RUNS = 1_000_000
QUICK_POSITIONS = 3000  # a forward run of this length takes a few seconds
PRODUCTS_PER_SECOND = 3e8  # of scores in constant-bit arithmetic, on one core
LONG_RUN = 10.0  # seconds of a forward run that is announced


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bits", type=int, metavar="S", help="bits before and after the point (default: the fewest)")
    parser.add_argument(
        "--precision",
        metavar="D",
        help="sN: constant-bit arithmetic, as --bits N; float64, float32, tf32, bfloat16, float16, e4m3, e5m2 or pN: "
        "every operation rounded to it, sums in any order; real: no rounding",
    )
    parser.add_argument("--accumulate", choices=("float32",), help="with --precision: sum matrix products in float32")
    parser.add_argument("--method", default="certified", help="certified (default), exhaustive, sampled")
    parser.add_argument(
        "--runs",
        type=int,
        metavar="R",
        help="inputs run forward beside the proof; 0 for none (default: 64 if quick)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs (default 0)")
    parser.add_argument("--run", dest="input", metavar="INPUT", help="print the chain of thought on this input")
    parser.add_argument("--save", metavar="NAME", help="write NAME.safetensors and NAME.json")
    parser.add_argument("--weights", metavar="FILE", help="judge these weights instead of building them")
    parser.add_argument("--printed", action="store_true", help="build the proof as printed (NOT: b = 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def reading_asked(args: argparse.Namespace) -> Real | Rounded | None:
    """The reading of a floating point --precision or of `real`; None for constant-bit arithmetic, which sets --bits."""
    from constructions.errors import BadInput
    from verify.arithmetic.any_order import Arithmetic
    from verify.arithmetic.readings import ConstantBits, Real, Rounded, reading_of
    from verify.certificate import CERTIFIED
    from verify.decide import running

    reading = reading_of(args.precision, args.accumulate)
    if isinstance(reading, ConstantBits):
        if args.bits not in (None, reading.s):
            raise BadInput(f"--bits {args.bits}: differs from --precision {args.precision}; give only one")
        args.bits = reading.s
        return None
    if isinstance(reading, Rounded):
        Arithmetic.of(reading.format, reading.accumulate)  # refuses an accumulation with fewer bits than the format
        if args.method != CERTIFIED:
            running(reading, args.method)
        return reading
    return None if args.precision is None else Real()


def format_of(reading: Real | Rounded) -> tuple[Format | None, Format | None]:
    """The format of a reading and that of its sums; None for real arithmetic."""
    from verify.arithmetic.readings import Rounded

    return (reading.format, reading.accumulate) if isinstance(reading, Rounded) else (None, None)


def seconds_of_a_run(nodes: int) -> float:
    """About how long one forward run of so many positions takes: every position meets all earlier ones in 2k lanes.

    >>> round(seconds_of_a_run(3000), 1), round(seconds_of_a_run(40_000))
    (0.7, 171)
    """
    return nodes**2 * 2 * nodes.bit_length() / PRODUCTS_PER_SECOND


def judge(
    args: argparse.Namespace, decomposition: Decomposition, reading: Real | Rounded | None
) -> tuple[CircuitTransformer, Certificate]:
    """Builds or loads the weights and decides them."""
    from functools import partial

    from constructions.circuit_simulation import build
    from constructions.circuits.weights import load_weights
    from constructions.errors import BadInput
    from constructions.files import check_target
    from verify.circuit.dtype import certify as certify_in
    from verify.circuit.dtype import run_by_torch
    from verify.circuit.forward import inputs_run
    from verify.circuit.verdict import certify, smallest_bits
    from verify.report.progress import progress_bar

    if args.runs is not None and not 0 <= args.runs <= MOST_RUNS:
        raise BadInput(f"--runs {args.runs}: must be between 0 and {MOST_RUNS}; the proof needs none")
    if args.save is not None:
        if args.save.endswith("/") or not args.save:
            raise BadInput(f"--save {args.save!r}: names no file; give a NAME for NAME.safetensors and NAME.json")
        check_target(f"{args.save}.safetensors")
    if args.printed and (args.bits is None or args.weights is not None):
        raise BadInput("--printed: needs --bits S and no --weights, as it fails at every S")
    runs = args.runs
    if runs is None:
        runs = DEFAULT_RUNS if decomposition.circuit.nodes <= QUICK_POSITIONS else 0
        runs = runs if reading is None else min(runs, inputs_run(decomposition.circuit.nodes))
    decide: Callable[..., Certificate] = certify
    if reading is not None and args.method != "certified":
        decide = partial(run_by_torch, method=args.method)
    elif reading is not None:
        decide = partial(certify_in, fmt=format_of(reading)[0], accumulate=format_of(reading)[1])
    seconds = seconds_of_a_run(decomposition.circuit.nodes)
    if reading is None and seconds > LONG_RUN and not args.json:
        nodes = decomposition.circuit.nodes
        advice = "" if args.bits is not None else "; --bits 2 asks for no smaller ones, which a run refutes"
        print(f"{nodes} positions: a forward run takes about {seconds:.0f} s{advice}", file=sys.stderr)
    with progress_bar("deciding", quiet=args.json) as advance:

        def progress(what: str, done: int, total: int) -> None:
            advance(done / max(total, 1), what)

        if args.weights is None and args.bits is None and args.method == "certified":
            return smallest_bits(decomposition, runs=runs, seed=args.seed, progress=progress, decide=decide)
        if args.weights is not None:
            model = load_weights(args.weights)
        else:
            s = 2 if args.bits is None else args.bits
            model = build(decomposition.circuit, s=s, as_printed=args.printed)
        options = {"s": args.bits, "method": args.method} if reading is None else {}
        return model, decide(model, decomposition, runs=runs, seed=args.seed, progress=progress, **options)


def chain_of_thought(
    model: CircuitTransformer,
    decomposition: Decomposition,
    s: int,
    bits: list[int],
    reading: Real | Rounded | None = None,
) -> tuple[list[dict[str, Any]], dict[str, int | None]]:
    """Every step of one run as a row, and the outputs by name."""
    import numpy as np

    from constructions.circuits.machine import ConstantBitMachine
    from verify.circuit.forward import generate

    circuit = decomposition.circuit
    if reading is None:
        tokens = [int(t) for t in ConstantBitMachine(model, s).generate(np.array([bits]))[0]]
    else:
        tokens = [int(t) for t in generate(model, *format_of(reading), np.array(circuit.evaluate(bits)))]
    value = {node: None if token < 0 else token for node, token in enumerate(tokens)}
    steps = [
        {
            "step": j + 1,
            "gate": gate.name,
            "kind": gate.kind,
            "reads": [circuit.name_of(node) for node in gate.fan_in],
            "token": value[len(circuit.inputs) + j],
        }
        for j, gate in enumerate(circuit.gates)
    ]
    return steps, {name: value[node] for name, node in circuit.outputs}


def print_chain(steps: list[dict[str, Any]], outputs: dict[str, int | None]) -> None:
    for step in steps:
        definition = f"{step['gate']} = {step['kind'].upper()} {' '.join(step['reads'])}"
        print(f"{step['step']:>6}  {step['token']}  {definition}")
    print("outputs " + " ".join(f"{name}={value}" for name, value in outputs.items()))


def finish(
    args: argparse.Namespace,
    model: CircuitTransformer,
    decomposition: Decomposition,
    certificate: Certificate,
    bits: list[int] | None,
    reading: Real | Rounded | None,
) -> int:
    """Saves, prints, and returns the exit code."""
    steps: list[dict[str, Any]] = []
    outputs: dict[str, int | None] = {}
    result = certificate.to_dict()
    if bits is not None:
        steps, outputs = chain_of_thought(model, decomposition, certificate.parameters["s"], bits, reading)
        result |= {"chain": steps, "outputs": outputs}
    if args.save is not None:
        _save(args.save, model, certificate)
    files = [] if args.save is None else [f"{args.save}.safetensors", f"{args.save}.json"]
    if args.json:
        print(json.dumps(result, allow_nan=False))
        if files:
            say_written(*files)
    else:
        if bits is not None:
            print_chain(steps, outputs)
        _print_certificate(certificate, files)
    return certificate.verdict.exit_code


def _save(name: str, model: CircuitTransformer, certificate: Certificate) -> None:
    from constructions.circuits.weights import save_weights
    from constructions.files import write_whole

    save_weights(model, f"{name}.safetensors")
    write_whole(f"{name}.json", (certificate.to_json() + "\n").encode())


def _print_certificate(certificate: Certificate, files: list[str]) -> None:
    from verify.report.certificate import print_report

    facts = [*_model_facts(certificate), *_outcome_facts(certificate), *_run_facts(certificate)]
    if files:
        facts.append(("wrote", ", ".join(files)))
    print_report(certificate, facts, covers=f"{_power(certificate.inputs_covered or 0)} inputs")


def _power(covered: int) -> str:
    """A number of inputs, from 10^9 on as a power of two."""
    if covered < 10**9:
        return str(covered)
    return f"{'about ' if covered & (covered - 1) else ''}2^{covered.bit_length() - 1}"


def _model_facts(certificate: Certificate) -> Iterator[Fact]:
    p, extra = certificate.parameters, certificate.extra
    yield "task", f"{certificate.task}, {p['circuit']}"
    yield "circuit", f"{extra['statistics']['gates']} gates; {p['n']} inputs, {p['T']} steps"
    yield "model", f"width {p['d']} = 3k+6 (k={p['k']}), s={p['s']} bits"
    if "precision" in p:
        sums = "" if p["accumulate"] == p["precision"] else f", sums in {p['accumulate']}"
        yield "format", p["precision"] + sums
    if "language" in extra:
        yield "language", extra["language"]


def _outcome_facts(certificate: Certificate) -> Iterator[Fact]:
    p, extra, found = certificate.parameters, certificate.extra, certificate.counterexample
    if certificate.verdict is Verdict.PROVED:
        yield from _margin_fact(certificate.margin)
    if found is not None:
        yield "gate", f"{found['gate']} ({found['kind'].upper()}, step {found['step']})"
        computed = f"{found['computed']}, should be {found['expected']}"
        yield "counterexample", f"input {found['input']}: token {computed}"
        yield from [("run", found["run"])] if "run" in found else []
        yield from [("why", found["why"])] if found["why"] else []
    if extra.get("smallest_bits"):
        s = extra["smallest_bits"]
        yield "fewest", f"s={s}" + (f"; s < {s} refuted" if s > 1 else "; s=0 has no token 1")
    elif certificate.verdict is Verdict.PROVED and extra.get("smaller_bits"):
        open_ = ", ".join(str(smaller["s"]) for smaller in extra["smaller_bits"] if smaller["verdict"] == "UNKNOWN")
        yield "fewest", f"s={p['s']}, or one of s = {open_}, which stay open"


def _margin_fact(distance: float | None) -> Iterator[Fact]:
    """How far g stays from 1/2; the token 0 allows g = 1/2, and then there is no number."""
    if distance is None:
        yield "margin", "g may be 1/2 itself where the token is 0, which is above 1/2 only for 1"
    elif distance > 0:
        yield "margin", f"g stays at least {below(distance)} from 1/2"


def _run_facts(certificate: Certificate) -> Iterator[Fact]:
    extra, runs = certificate.extra, certificate.extra["forward_runs"]
    if runs["inputs"]:
        how = f" in {runs['run']}" if "run" in runs else ""
        yield "runs", f"{runs['inputs']} inputs{' (all)' if runs['all'] else ''}{how}, no wrong token"
    if extra.get("harmless_differences"):
        yield "harmless", f"{extra['harmless_differences']} steps, for bits no input brings"
