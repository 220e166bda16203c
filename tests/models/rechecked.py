"""Recurrent problems decided and saved, and what the checker answers of a saved certificate."""

import json

from verify.arithmetic.readings import Real, reading_of
from verify.checker.inductive import check
from verify.checker.reading import Refusal
from verify.frame.decide import certify
from verify.tasks.recurrent.models import bytes_of


def decided(problem, precision, effort):
    """The bytes of the weights, and the fields of the certificate; "p8+float32" has its sums in float32."""
    reading = Real() if precision == "real" else reading_of(*precision.split("+"))
    found, weights = certify(problem, reading, effort), bytes_of(problem.model)
    return weights, json.loads(found.about(weights).to_json())


def outcome(weights, certificate):
    """The verdict that holds, or the exit code of a refusal."""
    try:
        return check(weights, json.dumps(certificate).encode())[0]
    except Refusal as refusal:
        return refusal.exit_code
