"""The smallest dimension that is proved to be enough, by search."""
