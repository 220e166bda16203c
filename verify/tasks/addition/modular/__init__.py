"""Adding two numbers modulo P: decided on all P^2 pairs."""
