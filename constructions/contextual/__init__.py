"""The encoder and decoder of contextual counting."""
