"""What `verify batch` prints: a line for each file, a summary, annotations for GitHub, JUnit for CI."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from constructions.errors import BadInput
from verify.frame.certificate import Certificate
from verify.frame.schema import as_json

WORDS = {0: "PROVED", 1: "REFUTED", 2: "BAD INPUT", 3: "UNKNOWN", 70: "BUG"}
WORST_FIRST = (70, 2, 1, 3, 0)
WIDTH = max(map(len, WORDS.values()))


@dataclass(frozen=True)
class BatchLine:
    """One file: the exit code that its own command would have, what it printed as JSON, or an error's line."""

    path: str
    code: int
    said: dict[str, object] | None
    message: str | None
    seconds: float

    def kept(self) -> dict[str, object] | None:
        """Its fields, where a verdict was found: what is wrong with a file may be mended."""
        return None if self.said is None else vars(self)

    @classmethod
    def of(cls, path: str, kept: object) -> BatchLine:
        """The line of a file, of the fields that were kept.

        Raises: ValueError for those of another one, TypeError for anything else.
        """
        if not isinstance(kept, dict):
            raise TypeError("no fields of a line")
        line = cls(**kept)
        if line.path != path:
            raise ValueError(f"is of {line.path}")
        return line

    @property
    def word(self) -> str:
        return WORDS.get(self.code, f"exit code {self.code}")

    @property
    def text(self) -> str:
        """Returns what is said beside the verdict."""
        if self.said is None:
            return self.message or ""
        try:
            said = str(Certificate.from_json(json.dumps(self.said)))
        except BadInput:
            return str(self.said.get("reason", ""))
        return said.partition(": ")[2] or said

    def as_dict(self) -> dict[str, object]:
        return {
            "file": self.path,
            "verdict": self.word,
            "exit_code": self.code,
            "certificate": self.said,
            "error": self.message,
            "seconds": self.seconds,
        }


def worst(lines: Sequence[BatchLine]) -> int:
    """The exit code of the batch: a bug, bad input, REFUTED, UNKNOWN, then PROVED.

    >>> worst([BatchLine("a", code, None, "", 0.0) for code in (0, 3, 1, 2)])
    2
    """
    codes = {line.code for line in lines}
    odd = codes - set(WORST_FIRST)
    return max(odd) if odd else next(code for code in WORST_FIRST if code in codes)


def print_line(line: BatchLine) -> None:
    print(f"{line.word:{WIDTH}}  {line.path}: {line.text}", flush=True)


def print_annotation(line: BatchLine) -> None:
    """Under GitHub Actions shows a file that is not proved beside the change; its runner reads stderr, too."""
    if os.environ.get("GITHUB_ACTIONS") != "true" or line.code == 0:
        return
    kind = "warning" if line.code == 3 else "error"
    path, title = (_property(text) for text in (line.path, f"{line.word}: {line.path}"))
    print(f"::{kind} file={path},title={title}::{_data(line.text)}", file=sys.stderr, flush=True)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def print_summary(task: str, lines: Sequence[BatchLine], code: int, seconds: float, *, is_json: bool) -> None:
    """How many of each verdict; with --json everything in one object."""
    counts = Counter(line.word for line in lines)
    if is_json:
        found = {"task": task, "files": [line.as_dict() for line in lines], "summary": dict(counts)}
        print(as_json(found | {"seconds": seconds, "exit_code": code}))
        return
    said = ", ".join(f"{n} {word}" for word, n in sorted(counts.items(), key=lambda item: -item[1]))
    files = "1 file" if len(lines) == 1 else f"{len(lines)} files"
    print(f"{files}: {said}, in {seconds:.1f} s", flush=True)


def junit(task: str, lines: Sequence[BatchLine]) -> bytes:
    """The results as JUnit XML: REFUTED and UNKNOWN are failures, bad input and bugs are errors."""
    failures = sum(line.code in (1, 3) for line in lines)
    errors = sum(line.code not in (0, 1, 3) for line in lines)
    about = {"name": f"verify batch {task}", "tests": str(len(lines)), "failures": str(failures), "errors": str(errors)}
    about["time"] = f"{sum(line.seconds for line in lines):.3f}"
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", about)
    for line in lines:
        name = {"classname": task, "name": _xml(line.path), "time": f"{line.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", name)
        if line.code != 0:
            kind = "failure" if line.code in (1, 3) else "error"
            message = {"type": line.word, "message": _xml(line.text)}
            ElementTree.SubElement(case, kind, message).text = _xml(line.text)
        if line.said is not None:
            ElementTree.SubElement(case, "system-out").text = _xml(json.dumps(line.said))
    ElementTree.indent(suites)
    found: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return found + b"\n"


def _xml(text: str) -> str:
    """The text with characters that XML 1.0 cannot hold written out, as names of files may have some.

    >>> _xml("a" + chr(7) + "b")
    'a\\\\x07b'
    """
    return "".join(c if c in "\t\n\r" or (c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff") else
                   c.encode("unicode_escape").decode() for c in text)  # fmt: skip
