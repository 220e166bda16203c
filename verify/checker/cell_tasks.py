"""Which class is right after a string that a recurrent cell reads: by an automaton in the certificate, or by a task."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from verify.checker.one_string import RightClasses
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineParameters
from verify.checker.recurrent import due_of

OWN = ("start", "tokens", "steps", "answers")  # what a user's cell says of itself
SELECTIVE = ("selective", "selective-modular")
ONE_TOKEN = ("modular", "vanilla", "first-homogeneous")
MOST_TYPES = 1000
Place = tuple[int, ...]


class Task(NamedTuple):
    """The tokens, and which class is right after a string: that of where it leads, None where none is judged."""

    tokens: list[int]
    start: Place
    after: Callable[[Place, int], Place]
    due: Callable[[Place], int | None]


def of_automaton(found: Mapping[str, object], classes: int) -> Task:
    """The task of a user's cell: states of an automaton by number, where each token leads, and what is right there."""
    tokens, steps, answers = (found[name] for name in OWN[1:])
    if not isinstance(tokens, list) or not isinstance(steps, list) or not isinstance(answers, list):
        raise Refusal("program: is no automaton")
    are_tokens = all(type(x) is int and x >= 0 for x in tokens) and len({*tokens}) == len(tokens) > 0
    are_steps = all(isinstance(row, list) and len(row) in (0, len(tokens)) for row in steps)
    are_steps = are_steps and all(type(q) is int and 0 <= q < len(answers) for row in steps for q in row)
    are_answers = all(x is None or type(x) is int and 0 <= x < classes for x in answers)
    is_one = are_tokens and are_steps and are_answers and len(steps) == len(answers) > 0
    require(is_one, "program: is no automaton over its tokens")
    where = {token: i for i, token in enumerate(tokens)}

    def after(place: Place, token: int) -> Place:
        row = steps[place[0]]
        require(bool(row), "program: the automaton ends before the strings do")
        return (row[where[token]],)

    return Task(tokens, (0,), after, lambda place: answers[place[0]])


def of_network(said: LineParameters, classes: int) -> Task:
    """A task that the checker knows."""
    if said.get("task") in ONE_TOKEN:
        due = due_of(classes, said)
        return Task([0], (0,), lambda place, token: (place[0] + 1,), lambda place: due(place[0]))
    require(said.get("task") in SELECTIVE, f"task {said.get('task')!r} is not checked", NOT_CHECKABLE)
    require(said["types"] > 0, "types: there are none")
    require(said["types"] <= MOST_TYPES, f"more than {MOST_TYPES} types are not followed", NOT_CHECKABLE)
    types, right = said["types"], RightClasses(said, said["types"], classes)

    def after(place: Place, token: int) -> Place:
        """The counts so far, and that of the last token."""
        grown = (*place[:token], place[token] + 1, *place[token + 1 : types])
        return *grown, grown[token]

    return Task([*range(types)], (0,) * (types + 1), after, lambda place: right.of(place[types]))
