"""The precision that is provably enough for a histogram model, and the one that is too little."""

SUMMARY = "find the smallest precision that is provably enough, and the largest provably too small"
