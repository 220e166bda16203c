"""Adding two numbers of n digits: decided on all B^(2n) inputs by an induction over columns."""
