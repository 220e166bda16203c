"""Adding two numbers of n digits: decided on all B^(2n) inputs by an induction over columns."""

SUMMARY = "prove that a transformer adds all pairs of n-digit numbers, most significant digit first"
