"""Certificates and tables for people."""
