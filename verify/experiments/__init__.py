"""The documents' experiments, done again: models are trained, decided exactly, and set beside what is printed."""
