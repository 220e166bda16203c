"""Recurrent networks that count inductively, decided at every length."""
