"""Parity of the own count, decided on all T^L sequences."""
