"""Recurrent models that count: cells, weights, and how trained ones are read."""
