"""The deterministic automaton of a regular expression, its states counted while they are made."""

from __future__ import annotations

from constructions.circuits.automata_lib import DFA, NFA
from constructions.errors import BadInput

MOST_STATES = 20_000  # of an automaton: some seconds
MOST_ARROWS = 1_000_000  # states times symbols: they are looked at in every state
MOST_HELD = 5_000_000  # states of the regular expression's automaton in those of the deterministic one: about 500 MB
TRAP = -1  # the state of strings that no other has; other states are numbered


def most_states(symbols: int) -> int:
    """How many states an automaton over so many symbols may have.

    >>> most_states(2), most_states(1000)
    (20000, 1000)
    """
    return min(MOST_STATES, MOST_ARROWS // symbols)


def deterministic(nfa: NFA, what: str) -> DFA:
    """The automaton of the sets of states that strings lead to, with TRAP where one leads nowhere.

    Raises: BadInput with the number reached when there are too many, or they are too large.

    >>> len(deterministic(NFA.from_regex("(a|b)*a(a|b)"), "(a|b)*a(a|b)").states)
    5
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

    most = most_states(len(nfa.input_symbols))
    start = closed({nfa.initial_state})
    number, subsets, rows, held = {start: 0}, [start], dict[int, dict[str, int]](), len(start)
    for i, subset in enumerate(subsets):  # which grows on the way
        rows[i] = dict.fromkeys(nfa.input_symbols, TRAP)
        for symbol in nfa.input_symbols:
            following = closed({to for state in subset for to in arrows.get(state, {}).get(symbol, ())})
            if following and following not in number:
                number[following] = len(subsets)
                subsets.append(following)
                held += len(following)
            if following:
                rows[i][symbol] = number[following]
        if len(subsets) > most or held > MOST_HELD:
            raise BadInput(
                f"{what}: its automaton has more than {most} states, or they take too much memory "
                f"({len(subsets)} were reached). Simplify it, or give the automaton with --dfa."
            )
    if any(TRAP in row.values() for row in rows.values()):
        rows[TRAP] = dict.fromkeys(nfa.input_symbols, TRAP)
    return DFA(
        states=set(rows),
        input_symbols=nfa.input_symbols,
        transitions=rows,
        initial_state=0,
        final_states={i for i, subset in enumerate(subsets) if subset & nfa.final_states},
    )
