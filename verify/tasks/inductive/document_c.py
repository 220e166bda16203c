"""The accuracies that document C reports, in percent: best of five seeds, in distribution / out of distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from verify.counting.tasks import Task

if TYPE_CHECKING:
    from verify.frame.certificate import Certificate

EMBEDDINGS = ("nope", "sine", "ape", "rope", "spe")
RECURRENT = ("rnn", "lstm", "s4", "mamba", "rwkv")
IN, OUT, FIRST_TOKEN = "trained", "tested", "first token"  # laws: the lengths trained on, those beyond, one answer

TABLE_2 = """
succession 2: 2.0/0.0  100/0.0  100/0.0  2.0/0.0  100/0.0
succession 4: 2.0/0.0  100/0.0  100/0.0  2.0/0.0  100/0.0
helper 2: 100/100  100/76.4  100/80.6  100/100  100/92.9
helper 4: 100/100  100/71.7  100/69.3  100/100  100/99.8
helper-shifted 1: 100/4.1  99.7/0.0  100/13.6  100/7.4  100/4.1
helper-shifted 2: 100/100  100/100  100/81.34  100/78.7  100/18.3
helper-shifted 4: 100/100  100/95.6  100/100  100/100  100/99.8
shifted 1: 100/16.7  100/4.3  100/50.5  100/37.7  100/9.0
shifted 2: 100/25.0  100/78.7  100/27.8  100/92.5  100/57.8
shifted 4: 100/46.1  100/48.6  100/51.9  100/98.86  100/83.8
modular 1: 11.8/11.8  100/100  100/71.2  11.8/11.8  100/8.2
modular 2: 12.0/11.8  100/100  100/100  11.8/11.8  100/8.2
modular 4: 11.8/11.8  100/100  100/100  11.8/11.8  100/12.1
selective 1: 96.0/9.3  99.5/68.8  100/10.6  99.7/29.9  99.8/61.3
selective 2: 99.7/94.1  99.8/32.6  100/13.9  99.7/49.1  99.7/86.9
selective 4: 99.7/100  100/100  100/100  99.7/52.5  99.4/98.2
selective-modular 2: 92.3/56.4  96.5/47.4  99.8/27.2  98.1/32.3  99.7/46.8
selective-modular 4: 97.4/91.8  100/98.2  99.9/97.3  98.5/39.8  98.2/54.6
"""

TABLE_A1 = """
helper 1: 100/100  100/100  100/100  100/15.5  100/100
helper 2: 100/100  100/100  100/100  100/12.1  100/100
helper 4: 100/100  100/100  100/100  100/76.5  100/100
helper-shifted 1: 100/100  100/100  100/100  100/1.5  100/3.2
helper-shifted 2: 100/100  100/100  100/100  100/5.1  100/0.0
helper-shifted 4: 100/100  100/100  100/100  100/100  100/100
shifted 1: 100/100  100/100  100/96.3  100/7.8  99.9/29.4
shifted 2: 100/100  100/100  100/100  100/99.9  100/30.8
shifted 4: 100/100  100/100  100/100  100/97.5  100/93.8
modular 1: 100/100  100/100  100/98.3  91.8/11.5  100/8.2
modular 2: 100/100  100/100  100/100  100/11.1  100/11.0
modular 4: 100/100  100/100  100/100  100/16.6  100/12.8
selective 1: 99.3/94.5  100/100  78.3/59.3  100/99.8  100/100
selective 2: 99.4/95.1  100/100  91.3/66.7  100/96.6  100/100
selective 4: 97.8/85.3  100/100  98.3/72.9  100/97.0  100/100
selective-modular 1: 100/100  100/100  87.7/27.8  58.4/28.2  98.5/83.1
selective-modular 2: 100/100  100/100  92.9/31.4  99.4/60.7  99.2/56.5
selective-modular 4: 100/100  100/100  99.2/37.8  100/59.7  100/56.8
"""

# With BOS: Table A4 for succession and modular, A7 for selective.
TABLES_A4_A7 = """
succession 1: 100/0.0  -  -  100/0.0  -
succession 2: 100/0.0  -  -  100/0.0  -
succession 4: 100/0.0  -  -  100/0.0  -
modular 1: 100/10.1  -  -  100/27.8  -
modular 2: 100/8.6  -  -  100/40.3  -
modular 4: 100/8.6  -  -  100/41.6  -
selective 1: 100/99.5  100/98.3  100/99.4  100/68.2  100/98.3
selective 2: 100/99.9  100/100  100/95.8  100/40.9  100/99.9
"""

# The first token, which alone these two tables score: Table A5 without BOS (d = 32 and d = 4 alike), and Table A6 with
# causal masking.
TABLES_A5_A6 = """
first-homogeneous 1: 0/0  100/100  100/100  0/0  100/100
first-heterogeneous 1: 100/100  -  -  -  -
"""

# Table A4's row without BOS that Table 2 does not have; its other ones are Table 2's.
TABLE_A4_WITHOUT_BOS = """
succession 1: 2.0/0.0  -  -  2.0/0.0  -
"""

TRAINED = {"selective-modular": 64}  # the longest string that C trains on; 50 elsewhere
TESTED = dict.fromkeys(
    ("first-homogeneous", "first-heterogeneous", "selective-modular"), 128
)  # and tests; 100 elsewhere


def lengths(task: str) -> dict[str, range]:
    """The lengths that C trains a task on, and those that it tests beyond them.

    >>> lengths("modular")
    {'trained': range(1, 51), 'tested': range(51, 101)}
    """
    longest = TRAINED.get(task, 50)
    return {IN: range(1, longest + 1), OUT: range(longest + 1, TESTED.get(task, 100) + 1)}


def as_drawn(law: str) -> str:
    """The name of a law whose strings are those that C draws: of one full length, at shifts at which they fit."""
    return f"{law}, as drawn"


@dataclass(frozen=True)
class Reported:
    """One cell of C's tables; `model` is one of EMBEDDINGS, of a transformer, or of RECURRENT.

    Units: inside and outside the training lengths, in percent.
    """

    task: str
    model: str
    layers: int
    has_bos: bool
    inside: float
    outside: float


@cache
def reported() -> tuple[Reported, ...]:
    """All cells, in the order in which the document prints them.

    >>> len(reported()), reported()[0]
    (208, Reported(task='succession', model='nope', layers=2, has_bos=False, inside=2.0, outside=0.0))
    """
    tables = (
        (TABLE_2, EMBEDDINGS, False),
        (TABLES_A4_A7, EMBEDDINGS, True),
        (TABLES_A5_A6, EMBEDDINGS, False),
        (TABLE_A1, RECURRENT, False),
    )
    return tuple(cell for text, models, has_bos in tables for cell in _cells(text, models, has_bos))


@cache
def reported_again() -> tuple[Reported, ...]:
    """Cells of Table A4 that are said beside others, and are no cells of the table of claims.

    >>> [(cell.model, cell.inside, cell.has_bos) for cell in reported_again()]
    [('nope', 2.0, False), ('rope', 2.0, False)]
    """
    return tuple(_cells(TABLE_A4_WITHOUT_BOS, EMBEDDINGS, has_bos=False))


def figure_of_c(task: str, model: str, layers: int, *, bos: bool = False) -> float:
    """The accuracy out of distribution.

    Raises: KeyError where C has no such cell.

    >>> figure_of_c("shifted", "rope", 4), figure_of_c("modular", "rope", 4, bos=True)
    (98.86, 41.6)
    """
    found = {(c.task, c.model, c.layers, c.has_bos): c.outside for c in reported()}
    return found[task, model, layers, bos]


def beside(which: Task, model: str, certificate: Certificate) -> dict[str, dict[str, object]]:
    """C's figures at the lengths of each law, in percent, beside the share of right answers; none where C has no cell.

    A share is over all answers counted from the first to the last length, as a fraction, and null where some are
    undecided or not counted. On strings over several types C's own is over those that it draws.
    """
    layers = certificate.parameters.get("layers")
    found = [c for c in reported() if (c.task, c.model, c.layers, c.has_bos) == (which.name, model, layers, False)]
    if not found or "by_length" not in certificate.extra or which != Task.of(which.name):
        return {}
    said = {IN: found[0].inside, OUT: found[0].outside}
    return {
        law: {"lengths": f"{n[0]}..{n[-1]}", "percent": said[law], "share": _share(certificate, n)}
        for law, n in lengths(which.name).items()
    }


def in_words(beside: dict[str, dict[str, object]]) -> list[tuple[str, str]]:
    """The line of a report.

    >>> of_c = {IN: {"lengths": "1..50", "percent": 100.0, "share": "1/2"}}
    >>> in_words(of_c | {OUT: {"lengths": "51..100", "percent": 98.3, "share": None}})[0][1]
    '100 % in distribution, 98.3 % out of it (Table A1, best of five seeds); this network: 50 % on 1..50'
    """
    if not beside:
        return []
    inside, outside = (beside[law]["percent"] for law in (IN, OUT))
    said = f"{inside:g} % in distribution, {outside:g} % out of it (Table A1, best of five seeds)"
    shares = [(Fraction(str(x["share"])), x["lengths"]) for x in beside.values() if x["share"] is not None]
    own = ", ".join(f"{_percent(share)} on {where}" for share, where in shares)
    return [("document C", said + f"; this network: {own}" * bool(own))]


def _share(certificate: Certificate, within: range) -> str | None:
    """Right answers of all at these lengths, each of which must be counted and decided."""
    right, total, known = 0, 0, 0
    runs = certificate.extra["by_length"]
    assert isinstance(runs, list)
    for run in runs:
        n = len(range(max(run["first"], within[0]), min(run["last"], within[-1]) + 1))
        own, wrong, undecided = (int(run[name]) for name in ("right", "wrong", "undecided"))
        if n and undecided:
            return None
        right, total, known = right + n * own, total + n * (own + wrong), known + n
    share = Fraction(right, total or 1)
    return None if known < len(within) else f"{share.numerator}/{share.denominator}"


def _percent(share: Fraction) -> str:
    """In percent, all or nothing only where it is.

    >>> _percent(Fraction(9999, 10000)), _percent(Fraction(1)), _percent(Fraction(1, 2))
    ('99.9 %', '100 %', '50 %')
    """
    return f"{math.floor(1000 * share) / 10:g} %"


def _cells(text: str, models: tuple[str, ...], has_bos: bool) -> list[Reported]:
    found = []
    for line in text.strip().splitlines():
        name, _, figures = line.partition(": ")
        task, layers = name.split()
        for model, pair in zip(models, figures.split("  "), strict=True):
            if pair != "-":
                inside, outside = map(float, pair.split("/"))
                found.append(Reported(task, model, int(layers), has_bos, inside, outside))
    return found
