"""Certificates, tables and figures for people."""
