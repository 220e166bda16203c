"""Other numbers in a model that is judged: the least change that mends it, how far all may move, and fewer bits."""
