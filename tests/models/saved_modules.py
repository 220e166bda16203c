"""Certificates about modules as they are saved, what the checker answers, and forgeries of both files."""

import dataclasses
import hashlib
import json
import random

from verify.checker import kinds
from verify.checker.reading import Refusal
from verify.frame.decide import certify
from verify.module.problem import ModuleProblem
from verify.module.program import program
from verify.tasks.module.task import as_bytes


def outcome(weights, text):
    try:
        return 0, kinds.check(weights, text.encode())[0]
    except Refusal as refusal:
        return refusal.exit_code, str(refusal)


def saved(module, task):
    """The weights and the certificate as `verify module --save` writes them."""
    problem = ModuleProblem(module.eval(), task)
    weights = as_bytes(problem.module)
    found = certify(problem).about(weights)
    return weights, dataclasses.replace(found, extra={**found.extra, "program": program(problem)}).to_json()


def with_weights(weights, draw):
    """The file with one bit of its numbers flipped."""
    start = 8 + int.from_bytes(weights[:8], "little")
    raw, place = bytearray(weights), draw.randrange(start, len(weights))
    raw[place] ^= 1 << draw.randrange(8)
    return bytes(raw)


def fitting(c, weights):
    return json.dumps(c | {"weights_sha256": hashlib.sha256(weights).hexdigest()})


def as_proof(c, margin):
    """A certificate that says that all inputs are right, its fields fitting each other."""
    total = str(sum(int(n) for n in c["counts"].values()))
    tightest = {"input": (c["tightest"] or c["counterexample"])["input"], "margin": margin}
    fields = {"verdict": "PROVED", "inputs_covered": total, "margin": margin, "tightest": tightest}
    counts = {"right": total, "wrong": "0", "undecided": "0"}
    return c | fields | {"counterexample": None, "counts": counts, "wrong_inputs": []}


def of_other_weights(weights, text, name, seeds):
    """Three margins each for other weights, said to be right on all inputs: weights, certificate and what was drawn."""
    said = json.loads(text)
    for seed in seeds:
        moved = with_weights(weights, random.Random(f"{name} {seed}"))
        for margin in (1e-9, abs(said["margin"] or 1), 3.0):
            yield moved, fitting(as_proof(said, margin), moved), (seed, margin)
