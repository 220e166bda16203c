"""Recurrent networks that count inductively, decided at every length."""

COUNTS = ("rnn", "gru", "lstm", "mingru", "ssm", "s4", "decay", "mamba", "rwkv")
IMPOSSIBLE = ("C-R1", "C-R2", "C-R15", "C-R23", "C-R24")
