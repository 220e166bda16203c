"""The rows of the frontier table that this project keeps (docs/frontier.md shows them)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

TABLE = Path(__file__).parent / "frontier.json"
FrontierRow = TypedDict(
    "FrontierRow",
    {
        "model": str,
        "T": int,
        "L": int,
        "p": int,
        "d": int,
        "margin": float,
        "lower bound on d": int,
        "of what": str,
        "tried": str,
    },
)


def kept_table() -> list[FrontierRow]:
    """One dictionary a row: model, T, L, p, the smallest d that was proved, and what was tried below it."""
    rows: list[FrontierRow] = json.loads(TABLE.read_text(encoding="utf-8"))
    return rows
