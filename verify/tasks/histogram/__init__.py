"""The histogram task, decided on all T^L sequences."""

SUMMARY = "prove that a one-layer transformer counts every token of every sequence"
MODEL = "constructions.histogram:HistogramTransformer"
IS_DEFAULT = True
