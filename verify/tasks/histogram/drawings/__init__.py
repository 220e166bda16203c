"""Figures of histogram models."""
