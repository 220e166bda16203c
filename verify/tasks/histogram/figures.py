"""The figures of histogram models that `verify figure` draws: options in, figure out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from verify.commands.options import AddKind, whole_numbers
from verify.commands.vocabulary import option
from verify.tasks.histogram.command import LAWS, Chosen, HistogramWish, add_model_arguments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from constructions.histogram import HistogramTransformer


def add_kinds(add_kind: AddKind) -> None:
    attention = add_kind("attention", "the mixing matrix of a histogram model on one sequence")
    option(attention, "input", required=True, metavar="T,T,...", help="tokens, such as 1,0,1,2")
    activation = add_kind("activation", "what a neuron reads at each count over all inputs, and the thresholds")
    activation.add_argument("--neuron", type=int, default=0, help="which neuron (default: 0)")
    margin = add_kind("margin", "the proved margin at each count")
    option(margin, "budget", help="time limit (default: 30)")
    confusion = add_kind("confusion", "the exact confusion matrix of a histogram model")
    confusion.add_argument("--law", choices=LAWS, default="uniform", help="of the sequences (default: uniform)")
    option(confusion, "budget", help="time limit (default: 30)")
    cosines = add_kind("cosines", "every token's cosines with the other tokens and with the neurons, as ranges")
    classes = add_kind("classes", "which class wins over the values of two neurons")
    classes.add_argument("--neurons", default="0,1", metavar="I,J", help="which two (default: 0,1)")
    logits = add_kind("logits", "every logit of one token over the true count, as ranges over all inputs")
    logits.add_argument("--token", type=int, default=0, help="whose logits (default: 0)")
    mixtures = add_kind("mixtures", "which count the hidden layer answers on mixtures of embeddings")
    mixtures.add_argument("--tokens", default="0,1,2", metavar="T,T,T", help="the tokens that are mixed "
        "(default: 0,1,2)")  # fmt: skip
    singular = add_kind("singular", "the singular values of a histogram model's first matrix")
    for kind in (attention, activation, margin, confusion, cosines, classes, logits, mixtures, singular):
        add_model_arguments(kind)
    parameters = add_kind("parameters", "the fewest parameters that are proved to count, for all six histogram models")
    phase = add_kind("phase", "which (d, p) are proved to count, for all six histogram models")
    for kind in (parameters, phase):
        option(kind, "T", default=32, help="alphabet size (default: 32)")
        option(kind, "L", default=10, help="sequence length (default: 10)")
    option(phase, "layers", default=1, choices=(1, 2), help="1, or 2 beside what one layer does (default: 1)")


def draw(args: argparse.Namespace) -> Figure:
    """The figure that the arguments ask for: each kind's own options are read here, and handed on as values."""
    if args.kind in ("phase", "parameters"):
        from verify.tasks.histogram.drawings.parameters import parameters
        from verify.tasks.histogram.drawings.phase import phase, phase_of_two

        of_sizes = parameters if args.kind == "parameters" else phase_of_two if args.layers == 2 else phase
        return of_sizes(args.T, args.L)
    from verify.tasks.histogram.drawings import histogram, mixtures, readouts

    tokens = whole_numbers("input", args.input) if args.kind == "attention" else []
    pair = whole_numbers("neurons", args.neurons, 2) if args.kind == "classes" else [0, 1]
    wish = HistogramWish.of(args, L=len(tokens) if args.kind == "attention" else None)
    found = wish.chosen(quiet=False)
    module = found.module
    drawn: dict[str, Callable[[], Figure]] = {
        "attention": lambda: histogram.attention(module, tokens),
        "activation": lambda: histogram.activation(module, args.neuron),
        "margin": lambda: _margins(found, wish.L, args.budget),
        "confusion": lambda: _confusion(module, wish.L, args.law, args.budget),
        "cosines": lambda: readouts.cosines(module),
        "classes": lambda: readouts.class_map(module, (pair[0], pair[1])),
        "logits": lambda: readouts.logits_over_counts(module, args.token),
        "mixtures": lambda: mixtures.mixtures(module, whole_numbers("tokens", args.tokens)),
        "singular": lambda: readouts.singular_values(module),
    }
    return drawn[args.kind]()


def _margins(found: Chosen, L: int | None, budget: float) -> Figure:
    from verify.tasks.histogram.drawings.histogram import margins
    from verify.tasks.histogram.proof import certify

    return margins(certify(found.module, L=L, claim=found.claim, budget=budget))


def _confusion(module: HistogramTransformer, L: int | None, law: str, budget: float) -> Figure:
    from verify.frame.decide import Effort
    from verify.frame.judged import check_judged
    from verify.tasks.histogram.confusion import confusion
    from verify.tasks.histogram.drawings.confusion import confusion_matrix
    from verify.tasks.histogram.stored import StoredModel

    check_judged(module, type(module))
    found = confusion(StoredModel.of(module, L), law, Effort(budget))
    return confusion_matrix(found, f"{module.model}, T={module.T}, d={module.d}, p={module.p}; law {law}")
