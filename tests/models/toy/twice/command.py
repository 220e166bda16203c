"""`verify twice`: does every position know whether its token occurs again?"""

import argparse

from constructions.errors import BadInput
from verify.commands import request, vocabulary
from verify.commands.parsing import add_weights


def add_arguments(parser: argparse.ArgumentParser) -> None:
    vocabulary.option(parser, "T")
    vocabulary.option(parser, "L", required=True)
    add_weights(parser, "judge these weights instead")
    request.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    asked = request.Request.of(args)
    if (args.weights is None) == (args.T is None):
        raise BadInput("--T: give it, or --weights.")
    from verify.tasks.twice import model, task

    is_built = args.weights is None
    module = model.orthonormal(T=args.T, L=args.L) if is_built else model.load(args.weights, args.L)
    problem = task.Twice(module, "TOY-1" if is_built else None)
    return request.publish(asked, request.decided(asked, problem), model.as_bytes(module))
