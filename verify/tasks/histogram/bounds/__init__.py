"""The sizes that the propositions ask for, and those that are proved."""

SUMMARY = (
    "print every model's smallest d and p: printed, proved enough, proved too few; with --N, count01's limit on n2"
)
