"""How many answers are right at each length: what document C's accuracies are a sample of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from verify.counting.tasks import STARTED

SHOWN = 12  # runs of lengths that a report prints

Counts = tuple[int, int, int]  # right, wrong and undecided answers


def counted(lines: Iterable[Sequence[bool | None]]) -> list[Counts]:
    """The counts at one length after another, over lines of whether each answer is right.

    >>> counted([[True, False], [True, None, True]])
    [(2, 0, 0), (0, 1, 1), (1, 0, 0)]
    """
    found: list[list[int]] = []
    for answers in lines:
        for n, is_right in enumerate(answers):
            if n == len(found):
                found.append([0, 0, 0])
            found[n][2 if is_right is None else 0 if is_right else 1] += 1
    return [(right, wrong, open_) for right, wrong, open_ in found]


def as_json(counts: Sequence[Counts], shortest: int = 1) -> dict[str, object]:
    """`by_length`, runs of lengths with the same counts, and `first_wrong_length`, null where none is known to be so.

    `shortest` is the length of the first counts: 0 where a number word alone is an input.

    >>> as_json([(1, 0, 0), (1, 0, 0), (0, 1, 0)])["by_length"][1]
    {'first': 3, 'last': 3, 'right': '0', 'wrong': '1', 'undecided': '0'}
    >>> as_json([(1, 0, 1), (0, 1, 0)])["first_wrong_length"]  # the undecided answer may be wrong
    """
    runs = []
    for key, group in groupby(enumerate(counts, shortest), lambda pair: pair[1]):
        places = [n for n, _ in group]
        names = dict(zip(("right", "wrong", "undecided"), map(str, key), strict=True))
        runs.append({"first": places[0], "last": places[-1], **names})
    unlike = next(((n, wrong) for n, (_, wrong, open_) in enumerate(counts, shortest) if wrong or open_), (None, 0))
    return {"by_length": runs, "first_wrong_length": unlike[0] if unlike[1] else None}


def proved_in_words(extra: Mapping[str, object], parameters: Mapping[str, object]) -> str:
    """Says which lengths a proof is of; a table of positions ends them, and BOS and a leading number word take places.

    >>> proved_in_words({"length": "all", "longest": 127}, {"name": "selective", "positions": 128, "bos": True})
    '1 to 127, at every shift with shift + length + 1 <= 128'
    >>> proved_in_words({"length": 30}, {}), proved_in_words({"length": "all"}, {})
    ('1 to 30', 'all')
    """
    longest = extra.get("longest", extra["length"])
    if longest == "all":
        return "all"
    if "positions" not in parameters:
        return f"1 to {longest}"
    before = bool(parameters["bos"]) + (parameters["name"] in STARTED)
    places = f"shift + length{f' + {before}' * (before > 0)}"
    return f"1 to {longest}, at every shift with {places} <= {parameters['positions']}"


def in_words(extra: Mapping[str, object]) -> list[tuple[str, str]]:
    """The lines of a report.

    >>> in_words(as_json([(1, 0, 0), (1, 0, 0), (0, 1, 0)]))
    [('by length', '1..2: 1 of 1 right; 3: 0 of 1 right'), ('first wrong', 'length 3')]
    """
    runs = extra.get("by_length", [])
    assert isinstance(runs, list)
    parts = []
    for run in runs[:SHOWN]:
        right, wrong, undecided = (int(run[name]) for name in ("right", "wrong", "undecided"))
        lengths = f"{run['first']}" if run["first"] == run["last"] else f"{run['first']}..{run['last']}"
        rest = f", {undecided} undecided" if undecided else ""
        parts.append(f"{lengths}: {right} of {right + wrong + undecided} right{rest}")
    if len(runs) > SHOWN:
        parts.append(f"and {len(runs) - SHOWN} runs more, in --json")
    first_wrong = extra.get("first_wrong_length")
    first = [] if first_wrong is None else [("first wrong", f"length {first_wrong}")]
    return [("by length", "; ".join(parts)), *first] if parts else []
