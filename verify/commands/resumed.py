"""Results of independent jobs kept in a folder, one file for each, so that the same command goes on from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from constructions.errors import BadInput
from constructions.written_files import made_folder, write_whole

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class KeptResults(Generic[Job, Result]):
    """A file of a folder for each job, named by this program too: another one does all of it again.

    `named` is all that a job's result depends on; `to_json` gives None for a result that is not worth keeping.
    """

    folder: Path
    named: Callable[[Job], str]
    to_json: Callable[[Result], object]
    from_json: Callable[[Job, object], Result]

    @classmethod
    def of(
        cls,
        folder: str | None,
        named: Callable[[Job], str],
        to_json: Callable[[Result], object],
        from_json: Callable[[Job, object], Result],
    ) -> KeptResults[Job, Result] | None:
        """None where no folder is named.

        Raises: BadInput where it cannot be made.
        """
        return None if folder is None else cls(made_folder(folder, "resume"), named, to_json, from_json)

    def place(self, job: Job) -> Path:
        """The file of a job."""
        from verify.frame.program import code  # loads torch

        return self.folder / f"{hashlib.sha256(json.dumps([code(), self.named(job)]).encode()).hexdigest()}.json"

    def read(self, job: Job) -> list[Result]:
        """The result of a job, alone in a list, which is empty where it is not there.

        Raises: BadInput for a file that is damaged, or that says the result of another job.
        """
        place = self.place(job)
        if not place.exists():
            return []
        try:
            said = json.loads(place.read_text("utf-8"))
            if said["job"] != self.named(job):
                raise ValueError("of another job")
            return [self.from_json(job, said["result"])]
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise BadInput(f"resume: {str(place)!r} is damaged ({error}); delete it to start again") from None

    def write(self, job: Job, result: Result) -> None:
        """Keeps a result; the file appears whole or not at all."""
        said = self.to_json(result)
        if said is not None:
            data = json.dumps({"job": self.named(job), "result": said}).encode()
            write_whole(self.place(job), data, "resume")
