"""Writes docs/_ext/recorded.json, what pages of slow claims show: python -m tests.tools.write_recorded [ID ...]."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "docs" / "_ext"))
import claim_page  # noqa: E402

from verify.claims import CLAIMS  # noqa: E402


def main(more: list[str]) -> None:
    """Runs again what was recorded, and the claims that are named."""
    recorded = claim_page.recorded()
    runs = {claim.id: claim_page.run_small(claim) for claim in CLAIMS if claim.id in {*recorded, *more}}
    text = json.dumps({name: run._asdict() for name, run in runs.items()}, indent=1, ensure_ascii=False)
    claim_page.RECORDED.write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
