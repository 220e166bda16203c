"""A graph with one softmax attention layer as tables over single positions' tokens, and what comes after them."""
