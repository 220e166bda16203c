"""Ceilings of accuracy in inductive counting, exactly, and checks of the arguments on random models."""
