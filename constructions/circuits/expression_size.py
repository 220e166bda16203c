"""How many states the automaton of a regular expression may have, before the library makes them."""

from __future__ import annotations

import re
from collections import deque

from automata.fa.nfa import NFA

from constructions.errors import BadInput

MOST_STATES = 20_000  # of an automaton: some seconds
MOST_HELD = 5_000_000  # states of the regular expression's automaton in those of the deterministic one: about 500 MB
TOKEN = re.compile(r"\\.|\[[^\]]*\]|\{(?P<low>\d*)(?:(?P<comma>,)(?P<high>\d*))?\}|.", re.DOTALL)


def states_at_most(regex: str) -> int:
    """A bound on the states that the library makes of a regular expression; of a malformed one any number.

    A symbol is two states, a repetition its copies, a union the sum, an intersection or a shuffle the product.

    >>> states_at_most("0*1"), states_at_most("((01){100}){100}&1*") > 10**4
    (6, True)
    """
    levels = [_Level()]
    for token in TOKEN.finditer(regex):
        text, here = token[0], levels[-1]
        if text == "(":
            levels.append(_Level())
        elif text == ")" and len(levels) > 1:
            here = levels.pop()
            levels[-1].follow(here.closed("|") + 1)
        elif text in ("|", "&", "^"):
            here.total, here.join = here.closed(text), text
        elif text in ("*", "?"):
            here.last += 1
        elif text == "+":
            here.last = 2 * here.last + 1
        elif token["low"] is not None:
            here.last = here.last * max(int(token["low"][:18] or 0) + 1, int((token["high"] or "0")[:18])) + 1
        else:
            here.follow(2)
    total = 0
    for level in levels:
        total += level.closed("|")
    return total


class _Level:
    """What stands between two parentheses: the total before the last infix sign, the factors since it, the last one."""

    def __init__(self) -> None:
        self.total, self.join, self.factors, self.last = 0, "|", 0, 0

    def follow(self, states: int) -> None:
        """One more factor."""
        self.factors, self.last = self.factors + self.last, states

    def closed(self, join: str) -> int:
        """The total when an infix sign, or the end, comes."""
        right = self.factors + self.last
        self.factors = self.last = 0
        return self.total + right + 1 if self.join == "|" else max(1, self.total) * max(1, right)


def check_subsets(nfa: NFA, what: str) -> None:
    """Counts the states of the deterministic automaton, one after another, before the library makes them all.

    Raises: BadInput with the number reached when there are too many, or they are too large.
    """
    arrows = {state: {symbol: set(to) for symbol, to in row.items()} for state, row in nfa.transitions.items()}

    def closed(states: set[object]) -> frozenset[object]:
        found, todo = set(states), list(states)
        while todo:
            for state in arrows.get(todo.pop(), {}).get("", ()):
                if state not in found:
                    found.add(state)
                    todo.append(state)
        return frozenset(found)

    start = closed({nfa.initial_state})
    seen, todo, held = {start}, deque([start]), len(start)
    while todo:
        subset = todo.popleft()
        for symbol in nfa.input_symbols:
            following = closed({to for state in subset for to in arrows.get(state, {}).get(symbol, ())})
            if following and following not in seen:
                seen.add(following)
                todo.append(following)
                held += len(following)
        if len(seen) > MOST_STATES or held > MOST_HELD:
            raise BadInput(
                f"{what}: its automaton has more than {MOST_STATES} states, or they take too much memory "
                f"({len(seen)} were reached). Simplify it, or give the automaton with --dfa."
            )
