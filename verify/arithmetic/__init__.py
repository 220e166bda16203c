"""Arithmetic with proved errors: balls, formats, rounding, exact reals. Imports nothing else of verify."""
