"""Figures of exact quantities: what is drawn holds for all inputs, and none of it is sampled."""
