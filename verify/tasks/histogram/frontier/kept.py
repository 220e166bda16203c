"""The rows of the frontier table that this project keeps (docs/frontier.md shows them)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "frontier.json"


def kept_table() -> list[dict[str, Any]]:
    """One dictionary a row: model, T, L, p, the smallest d that was proved, and what was tried below it."""
    rows: list[dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return rows
