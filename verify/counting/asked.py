"""What one command line asks of inductive counting, parsed: the task, the model's shape, and how far it is to count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from verify.counting.tasks import Task
from verify.frame import registry

if TYPE_CHECKING:
    from verify.frame.certificate import Certificate
    from verify.frame.decide import Decidable

POSITIONAL = ("nope", "sine", "ape", "rope", "spe")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "tanh")
POSITIONS = 128  # of a construction's table


@dataclass(frozen=True)
class Asked:
    """A task and a model for it; None where the option was not given and the model chooses.

    `length` counts tokens after BOS and after a leading number word, None stands for all lengths. `positions` is P:
    shift + n <= P, POSITIONS where a construction is not told. `pe` is None for a file that says it. `dtype` is that of
    the stored numbers.
    """

    task: Task
    model: str
    pe: str | None = None
    has_bos: bool = False
    layers: int | None = None
    has_layernorm: bool = True
    activation: str | None = None
    n_heads: int | None = None
    d: int | None = None
    positions: int | None = None
    length: int | None = None
    dtype: str = "float64"
    as_printed: bool = False
    weights: str | None = None
    seed: int = 0
    by_length: bool = False

    @property
    def room(self) -> int:
        """The size of a construction's table of positions."""
        return POSITIONS if self.positions is None else self.positions


def nothing(certificate: Certificate) -> dict[str, object]:
    return {}


class Judged(NamedTuple):
    """A model with its task, ready to be decided, and the bytes of its weights; `facts` are lines of the report.

    `saved` are fields of the certificate that `verify check` needs and nobody reads.
    """

    problem: Decidable
    weights: bytes
    facts: Iterable[tuple[str, str]] = ()
    saved: Callable[[Certificate], dict[str, object]] = nothing


def judge_of(model: str) -> Callable[[Asked], Judged]:
    """How a kind of model is built or loaded: by `models.judged` of the folder that counts with it."""
    place = next(place for place, kinds in registry.holders("COUNTS").items() if model in kinds)
    found: Callable[[Asked], Judged] = import_module(f"{place}.models").judged
    return found
