"""Recurrent counters, decided at every length."""
