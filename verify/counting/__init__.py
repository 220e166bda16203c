"""Inductive counting (document C): its ten tasks, and what is asked of a model, whatever its family."""
