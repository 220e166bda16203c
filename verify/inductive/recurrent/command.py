"""From what was asked to a recurrent network and the problem that the house decides."""

from __future__ import annotations

from constructions.errors import BadInput, NotKnown
from constructions.recurrent.model import ACTIVATIONS, KINDS, as_bytes, load
from verify.inductive.asked import Asked, Judged
from verify.inductive.recurrent.task import Homogeneous


def judged(asked: Asked) -> Judged:
    """The network that was asked for, built or loaded, with its task.

    Raises: ProvedImpossible where no weights can do it, NotKnown where no construction is known, BadInput otherwise.
    """
    if asked.activation is not None and (asked.model != "rnn" or asked.activation not in ACTIVATIONS):
        raise BadInput(f"--activation {asked.activation}: --model rnn has tanh or relu, others have none; drop it")
    if asked.weights is None:
        raise NotKnown(f"task={asked.task.name}: no construction is known for --model {asked.model}")
    if asked.model not in KINDS:
        raise BadInput(f"--weights: reads {', '.join(KINDS)}; --model {asked.model} is built only")
    model = load(asked.weights, kind=asked.model, activation=asked.activation)
    if not asked.task.is_homogeneous:
        raise NotKnown(f"task={asked.task.name}: no proof is known for trained networks on all strings")
    return Judged(Homogeneous(model, asked.task, asked.length), as_bytes(model))
