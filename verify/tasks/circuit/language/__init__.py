"""Regular languages by chain of thought: the circuit is an automaton, unrolled over the positions."""

SUMMARY = "prove that a transformer recognises a regular language by chain of thought"
