"""`verify check`: re-checks saved certificates by the small independent checker."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from constructions.errors import BadInput
from constructions.regular_files import read
from verify.commands.request import SAVED
from verify.commands.vocabulary import option
from verify.frame.certificate import ExitCode
from verify.frame.schema import as_json

MOST_BYTES = 256 << 20  # of each file; every number becomes a Python integer
WEIGHTS, CERTIFICATE = SAVED
OUTCOMES = {0: "HOLDS", 1: "DOES NOT HOLD", 2: "UNREADABLE", 3: "NOT CHECKABLE"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", help="a folder that --save wrote, or one of its two files, the other beside it")
    option(parser, "json", help="print one JSON object per certificate and nothing else")
    parser.epilog = "Exit codes: 0 it holds, 1 it does not, 2 unreadable, 3 beyond what this checker recomputes."


def run(args: argparse.Namespace) -> int:
    answers = [check_files(weights) for weights in _weights(args.place)]
    for answer in answers:
        if args.json:
            print(as_json(answer))
            continue
        detail = answer["reason"] or f"{answer['verdict']}; not re-checked: {', '.join(answer['not_rechecked'])}"
        print(f"{answer['outcome']}  {answer['weights']}: {detail}")
    code = min({answer["exit_code"] for answer in answers} - {0}, default=0)
    return ExitCode(code, OUTCOMES[code])


def check_files(weights: Path) -> dict[str, Any]:
    """The outcome for one weights file and the certificate beside it."""
    from verify.checker import kinds
    from verify.checker.reading import Refusal

    certificate = weights.with_name(CERTIFICATE) if weights.stem == "weights" else weights.with_suffix(".json")
    verdict, trusted, code, reason = None, list[str](), 0, None
    try:
        files = read(weights, "weights", MOST_BYTES), read(certificate, "certificate", MOST_BYTES)
        verdict, trusted = kinds.check(*files)
    except Refusal as refusal:
        code, reason = refusal.exit_code, str(refusal)
    except BadInput as error:
        code, reason = 2, str(error)
    return {
        "weights": str(weights),
        "outcome": OUTCOMES[code],
        "exit_code": code,
        "verdict": verdict,
        "not_rechecked": trusted,
        "reason": reason,
    }


def _weights_beside(path: Path) -> Path:
    """The weights of a certificate, where one is named; any other path as it is."""
    if path.suffix != ".json" or path.is_dir():
        return path
    return path.with_name(WEIGHTS) if path.name == CERTIFICATE else path.with_suffix(".safetensors")


def _weights(place: str) -> list[Path]:
    path = _weights_beside(Path(place))
    files = sorted(path.glob("*.safetensors")) if os.path.isdir(place) else [path]
    if not files or not os.path.exists(place):
        raise BadInput(f"place={place!r}: no weights (*.safetensors) there. Name a folder that --save wrote.")
    return files
