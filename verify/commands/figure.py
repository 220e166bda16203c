"""`verify figure`: exact figures of models, proofs and circuits as SVG, PDF or PNG."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from verify.commands import request
from verify.commands.parsing import add_map, add_weights
from verify.report.console import say_written
from verify.tasks.histogram.command import LAWS, Wish, add_model_arguments

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")

    def add_kind(name: str, help: str) -> argparse.ArgumentParser:
        kind: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=help, allow_abbrev=False)
        kind.add_argument("--output", required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png")
        kind.add_argument("--size", metavar="WxH", help="on paper: 3.25x2.4in, 8x6cm, 80x60mm (default: as it fits)")
        kind.add_argument("--dpi", type=int, metavar="N", help="pixels per inch of a PNG (default: 150)")
        kind.add_argument("--no-title", action="store_true", help="leave the title to the caption of the paper")
        return kind

    attention = add_kind("attention", "the mixing matrix of a histogram model on one sequence")
    attention.add_argument("--sequence", required=True, metavar="T,T,...", help="tokens, such as 1,0,1,2")
    activation = add_kind("activation", "what a neuron reads at each count over all inputs, and the thresholds")
    activation.add_argument("--neuron", type=int, default=0, help="which neuron (default: 0)")
    margin = add_kind("margin", "the proved margin at each count")
    request.add_option(margin, "budget", help="time limit (default: 30)")
    confusion = add_kind("confusion", "the exact confusion matrix of a histogram model")
    confusion.add_argument("--law", choices=LAWS, default="uniform", help="of the sequences (default: uniform)")
    request.add_option(confusion, "budget", help="time limit (default: 30)")
    cosines = add_kind("cosines", "every token's cosines with the other tokens and with the neurons, as ranges")
    classes = add_kind("classes", "which class wins over the values of two neurons")
    classes.add_argument("--neurons", default="0,1", metavar="I,J", help="which two (default: 0,1)")
    logits = add_kind("logits", "every logit of one token over the true count, as ranges over all inputs")
    logits.add_argument("--token", type=int, default=0, help="whose logits (default: 0)")
    for kind in (attention, activation, margin, confusion, cosines, classes, logits):
        add_model_arguments(kind)
    parameters = add_kind("parameters", "the fewest parameters that are proved to count, for all six histogram models")
    parameters.add_argument("--T", type=int, default=32, help="alphabet size (default: 32)")
    parameters.add_argument("--L", type=int, default=10, help="sequence length (default: 10)")
    phase = add_kind("phase", "which (d, p) are proved to count, for all six histogram models")
    phase.add_argument("--T", type=int, default=32, help="alphabet size (default: 32)")
    phase.add_argument("--L", type=int, default=10, help="sequence length (default: 10)")
    contextual = add_kind("contextual", "contextual positions and attention of contextual counting on one string")
    contextual.add_argument("--string", required=True, metavar="S", help='such as "[0][101]0[1]1[]0"')
    contextual.add_argument("--regions", type=int, metavar="R", help="regions it counts (default: those of the string)")
    contextual.add_argument("--bias", choices=("BOS", "]", "0"), default="BOS", help="the bias token (default: BOS)")
    contextual.add_argument("--keys", choices=("onehot", "convex"), default="onehot", help="(default: onehot)")
    heads = add_kind("heads", "the heads of a Count01 model: pairs, attention ratios, outputs with a separating line")
    heads.add_argument("file", metavar="FILE", help="a state_dict (.safetensors or .pt)")
    add_map(heads, "file")
    heads.add_argument("--law", default="d-test", help="see verify heads (default: d-test)")
    heads.add_argument("--labels", choices=("majority-ones", "thesis"), default="majority-ones")
    heads.add_argument("--head", type=int, default=0, help="whose outputs (default: 0)")
    heads.add_argument("--svc", action="store_true", help="colour ratios by the SVC's accuracy (seconds per head)")
    inductive = add_kind("inductive", "modular counting beyond document C's lengths, and sinusoidal readouts")
    inductive.add_argument("--d-head", type=int, default=128, help="RoPE's head size (default: 128, as C's)")
    inductive.add_argument("--d", type=int, default=64, help="size of the sinusoidal table (default: 64)")
    cycle = add_kind("cycle", "the cycle of a recurrent network's state, with the ellipsoids of its proof")
    cycle.add_argument("--modulus", type=int, default=10, metavar="m", help="what is counted modulo (default: 10)")
    add_weights(cycle, "an RNN, GRU or LSTM (.safetensors or .pt) instead of the built cycle of two tanh units")
    ratios = add_kind("ratios", "which attention ratios (w01, w02) separate, and the best threshold's accuracy")
    ratios.add_argument("--values", required=True, metavar="V0,V1,V2", help="the head's values of 0, 1 and 2")
    ratios.add_argument("--law", default="d-test", help="a box, see verify heads (default: d-test)")
    modular = add_kind("modular", "addition modulo P: the circle, the logits of one pair, margins against K")
    modular.add_argument("--P", type=int, default=113, help="odd (default: 113)")
    modular.add_argument("--pair", default="30,95", metavar="A,B", help="whose logits (default: 30,95)")
    modular.add_argument("--K", type=int, default=3, help="frequencies, at most 4 (default: 3)")
    tape = add_kind("tape", "the chain of thought of a small circuit on one input")
    tape.add_argument("file", metavar="FILE", help="AIGER, .bench or .blif, combinational")
    tape.add_argument("--input", required=True, metavar="BITS", help="such as 011")


def run(args: argparse.Namespace) -> int:
    from constructions.written_files import check_target
    from verify.figures.style import Look, format_of, save, style

    check_target(args.output, "output")
    format_of(args.output)
    look = Look.of(args.size, args.dpi, args.no_title)
    with style():
        save(draw(args), args.output, look=look)
    say_written(args.output)
    return 0


def draw(args: argparse.Namespace) -> Figure:
    """The figure that the arguments ask for: each kind's own options are read here, and handed on as values."""
    if args.kind == "attention":
        tokens = _tokens(args.sequence)
        return _attention(Wish.of(args, L=len(tokens)), tokens)
    if args.kind == "activation":
        return _activation(Wish.of(args), args.neuron)
    if args.kind == "margin":
        return _margins(Wish.of(args), args.budget)
    if args.kind == "confusion":
        return _confusion(Wish.of(args), args.law, args.budget)
    if args.kind in ("cosines", "classes", "logits"):
        pair = _tokens(args.neurons, "neurons", 2) if args.kind == "classes" else []
        return _readout(Wish.of(args), pair, args.token if args.kind == "logits" else None)
    if args.kind == "contextual":
        return _contextual(args.string, args.regions, args.bias, args.keys)
    if args.kind == "heads":
        return _heads(args.file, args.law, args.labels, args.head, svc=args.svc)
    if args.kind == "tape":
        return _tape(args.file, args.input)
    if args.kind == "phase":
        from verify.tasks.histogram.drawings.phase import phase

        return phase(args.T, args.L)
    if args.kind == "parameters":
        from verify.tasks.histogram.drawings.parameters import parameters

        return parameters(args.T, args.L)
    if args.kind == "inductive":
        from verify.tasks.inductive.drawing import inductive

        return inductive(args.d_head, args.d)
    if args.kind == "cycle":
        return _cycle(args.modulus, args.weights)
    if args.kind == "ratios":
        from verify.commands.options import fractions
        from verify.tasks.count01.heads.ratios import ratios
        from verify.tasks.count01.layer_norm.laws import law_named

        return ratios(fractions("--values", args.values, 3), law_named(args.law))
    from verify.tasks.addition.modular.drawing import modular

    a, b = _tokens(args.pair, "pair", 2)
    return modular(args.P, (a, b), args.K)


def _cycle(modulus: int, weights: str | None) -> Figure:
    from constructions.recurrent import counters
    from constructions.recurrent.model import load
    from verify.tasks.recurrent.drawing import cycle

    counters.check(modulus)
    return cycle(counters.chinese(m=modulus) if weights is None else load(weights), modulus)


def _attention(wish: Wish, tokens: list[int]) -> Figure:
    from verify.tasks.histogram.drawings.histogram import attention

    return attention(wish.chosen(quiet=False).module, tokens)


def _activation(wish: Wish, neuron: int) -> Figure:
    from verify.tasks.histogram.drawings.histogram import activation

    return activation(wish.chosen(quiet=False).module, neuron)


def _margins(wish: Wish, budget: float) -> Figure:
    from verify.tasks.histogram.drawings.histogram import margins
    from verify.tasks.histogram.proof import certify

    found = wish.chosen(quiet=False)
    return margins(certify(found.module, L=wish.L, claim=found.claim, budget=budget))


def _readout(wish: Wish, neurons: list[int], token: int | None) -> Figure:
    """The classes over two neurons, one token's logits, or where neither is named every token's cosines."""
    from verify.tasks.histogram.drawings.readouts import class_map, cosines, logits_over_counts

    module = wish.chosen(quiet=False).module
    if token is not None:
        return logits_over_counts(module, token)
    return class_map(module, (neurons[0], neurons[1])) if neurons else cosines(module)


def _confusion(wish: Wish, law: str, budget: float) -> Figure:
    from verify.frame.decide import Effort
    from verify.frame.judged import check_judged
    from verify.tasks.histogram.confusion import confusion
    from verify.tasks.histogram.drawings.confusion import confusion_matrix
    from verify.tasks.histogram.stored import StoredModel

    module = wish.chosen(quiet=False).module
    check_judged(module, type(module))
    found = confusion(StoredModel.of(module, wish.L), law, Effort(budget))
    return confusion_matrix(found, f"{module.model}, T={module.T}, d={module.d}, p={module.p}; law {law}")


def _contextual(string: str, regions: int | None, bias: str, keys: str) -> Figure:
    from constructions.contextual_counting import build
    from verify.tasks.contextual.drawing import contextual
    from verify.tasks.contextual.task import parse

    tokens = parse(string)
    regions = max(1, string.count("[")) if regions is None else regions
    zeros = max(1, string.count("0")) if bias == "0" else None
    return contextual(build(max(1, len(tokens)), regions, bias=bias, keys=keys, zeros=zeros), tokens)


def _heads(file: str, named: str, labels: str, head: int, *, svc: bool) -> Figure:
    from constructions.count01 import load
    from verify.tasks.count01.heads.dissect import check_subset
    from verify.tasks.count01.heads.drawing import heads
    from verify.tasks.count01.layer_norm.laws import law_named

    model, law = load(file), law_named(named)
    check_subset("--head", [head], model.heads)
    if law.is_unbounded:
        raise BadInput("--law unbounded: has no shares to draw; take a box, such as box:0:200:200")
    return heads(model, law, labels, head, svc=svc)


def _tape(file: str, bits: str) -> Figure:
    from constructions.circuits.files import read_circuit
    from verify.tasks.circuit.command import input_bits
    from verify.tasks.circuit.drawing import tape

    circuit = read_circuit(file)
    return tape(circuit, input_bits(bits, circuit.inputs))


def _tokens(text: str, name: str = "sequence", count: int | None = None) -> list[int]:
    parts = text.split(",")
    are_numbers = all(part.strip().isascii() and part.strip().isdigit() and len(part) < 10 for part in parts)
    if not are_numbers or count not in (None, len(parts)):
        many = "tokens" if count is None else f"{count} numbers"
        raise BadInput(f"{name}={text[:60]!r}: must be {many} with commas between them, such as 1,0")
    return [int(part) for part in parts]
