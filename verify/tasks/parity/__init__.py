"""Parity of the own count, decided on all T^L sequences."""

SUMMARY = "prove that a one-layer transformer knows the parity of every token's count"
MODEL = "constructions.parity:ParityTransformer"
