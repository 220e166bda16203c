"""The smallest dimension that is proved to be enough, by search."""

SUMMARY = "search for the smallest provable d of a model; every hit is proved"
