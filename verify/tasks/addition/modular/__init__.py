"""Adding two numbers modulo P: decided on all P^2 pairs."""

SUMMARY = "prove that a transformer adds all pairs of numbers modulo P"
