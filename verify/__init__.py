"""Judgement: procedures that decide a module on all its inputs, and the `verify` command."""
