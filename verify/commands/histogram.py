"""`verify histogram`: builds or loads a model and decides it on all T^L sequences."""

from __future__ import annotations

import argparse

HELP = "prove a one-layer transformer counts every token of every sequence"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
