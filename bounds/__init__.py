"""Formulas: one module per proposition, as sympy expressions, printed and corrected."""
