"""The table of document C kept in a folder, proof by proof, so that it can go on later."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from constructions.errors import BadInput
from constructions.written_files import write_whole
from verify.kept import code
from verify.tasks.inductive.table import Entry, TableJob


@dataclass(frozen=True)
class KeptEntries:
    """One file of a folder for each proof, named by this program too: another one proves all again."""

    folder: Path

    def place(self, job: TableJob) -> Path:
        """The file of a proof."""
        bos = "bos" if job.has_bos else "no-bos"
        return self.folder / f"{job.task}-{job.model}-{bos}-{job.seed}-{code()[:16]}.json"

    def read(self, jobs: Iterable[TableJob]) -> dict[TableJob, Entry]:
        """What is there of these.

        Raises: BadInput for a file that is damaged.
        """
        found = {}
        for job in jobs:
            place = self.place(job)
            if place.exists():
                try:
                    found[job] = Entry(**json.loads(place.read_text("utf-8")))
                except (OSError, ValueError, TypeError) as error:
                    raise BadInput(f"resume: {str(place)!r} is damaged ({error}); delete it to start again") from None
        return found

    def write(self, job: TableJob, entry: Entry) -> None:
        """Keeps the outcome of a proof; the file appears whole or not at all."""
        write_whole(str(self.place(job)), json.dumps(asdict(entry)).encode(), "resume")
