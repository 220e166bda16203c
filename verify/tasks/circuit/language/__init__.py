"""Regular languages by chain of thought: the circuit is an automaton, unrolled over the positions."""
