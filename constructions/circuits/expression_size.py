"""How many states the automaton of a regular expression may have, before the library makes them."""

from __future__ import annotations

from collections import deque

from automata.fa.nfa import NFA

from constructions.errors import BadInput

MOST_STATES = 20_000  # of an automaton: some seconds
MOST_HELD = 5_000_000  # states of the regular expression's automaton in those of the deterministic one: about 500 MB


def check_subsets(nfa: NFA, what: str) -> None:
    """Counts the states of the deterministic automaton, one after another, before the library makes them all.

    Raises: BadInput with the number reached when there are too many, or they are too large.

    >>> from automata.fa.nfa import NFA
    >>> check_subsets(NFA.from_regex("(a|b)*a(a|b)"), "(a|b)*a(a|b)")
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
