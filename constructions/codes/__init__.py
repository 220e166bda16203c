"""Token codes in fewer dimensions than tokens, searched and kept."""
