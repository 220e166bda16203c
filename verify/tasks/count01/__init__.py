"""The Count01 task, decided on all counts of a domain."""

SUMMARY = "prove a one-dimensional transformer compares zeros with ones, whatever the length"
MODEL = "constructions.count01:Count01Transformer"
