"""Results of trials in a folder: each is written when it is there, so that a run that is cut goes on from it."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from constructions.written_files import made_folder, write_whole
from verify.frame.experiment import DecidedModel, Result, Trial
from verify.frame.program import code
from verify.frame.schema import as_json


def folder_of(out: str, experiment: str) -> Path:
    """The folder of an experiment's results, which is made.

    Raises: BadInput where it cannot be.
    """
    return made_folder(Path(out) / experiment, "out")


def keep(place: Path, trial: Trial, trained: DecidedModel) -> None:
    """Writes the weights, then the record that names their digest: a record stands for whole files."""
    digest = hashlib.sha256(trained.weights).hexdigest()
    record = {
        "trial": dict(trial.described),
        "result": trained.result.to_dict(),
        "training": dict(trained.training),
        "seconds": trained.seconds,
        "code": code(),
        "weights_sha256": digest,
    }
    write_whole(place / f"{trial.name}.safetensors", trained.weights, "out")
    write_whole(place / f"{trial.name}.json", as_json(record).encode() + b"\n", "out")


def kept(place: Path, trial: Trial) -> Result | None:
    """The result of a trial that this program kept with these settings, where its weights are those it was found of."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        said = json.loads((place / f"{trial.name}.json").read_text(encoding="utf-8"))
        weights = (place / f"{trial.name}.safetensors").read_bytes()
        is_its_own = said["trial"] == json.loads(json.dumps(dict(trial.described)))
        if is_its_own and said["code"] == code() and hashlib.sha256(weights).hexdigest() == said["weights_sha256"]:
            return Result.from_dict(said["result"])
    return None
