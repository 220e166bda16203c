"""The certificate: what was decided, in which reading, on how many inputs, and with which margin."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from constructions.errors import BadInput
from verify.arithmetic.outward import below, decimal, float_at_least, float_at_most
from verify.frame.schema import SCHEMA


class ExitCode(int):
    """An exit code that is an answer, and the answer in a word, for when nothing else can be printed.

    >>> import pickle
    >>> sent = pickle.loads(pickle.dumps(ExitCode(1, "REFUTED")))  # as from one process to another
    >>> sent, sent.answer
    (1, 'REFUTED')
    """

    answer: str

    def __new__(cls, code: int, answer: str) -> ExitCode:
        self = super().__new__(cls, code)
        self.answer = answer
        return self

    def __reduce__(self) -> tuple[type[ExitCode], tuple[int, str]]:
        return ExitCode, (int(self), self.answer)


class Verdict(StrEnum):
    """PROVED on every input, REFUTED by an input, or UNKNOWN with a reason."""

    PROVED = "PROVED"
    REFUTED = "REFUTED"
    UNKNOWN = "UNKNOWN"

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode({"PROVED": 0, "REFUTED": 1, "UNKNOWN": 3}[self.value], self.value)


BAD_INPUT_EXIT_CODE = 2
COLOURS = {Verdict.PROVED: "#007A5A", Verdict.REFUTED: "#B33A00", Verdict.UNKNOWN: "#8A6000"}  # in notebooks

READING_REAL = "real"
RUN_AS = "run_as"  # of a counterexample: the evaluation to run again, for programs to read
READING_DTYPE = "dtype, any order"
READING_BIT_EXACT = "bit-exact"

Plain = str | float | int | bool | None  # what JSON holds in one place
Json = Plain | Sequence["Json"] | Mapping[str, "Json"]

CERTIFIED, EXHAUSTIVE, SAMPLED = METHODS = ("certified", "exhaustive", "sampled")


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """Holds one verdict with everything needed to understand and repeat it; docs/certificate.md explains each field.

    A certificate is true where it proves: `assert certify(module)` fails on REFUTED and on UNKNOWN. Two are equal where
    their JSON is.

    >>> from constructions.relation_counting import bos
    >>> from verify.histogram import certify
    >>> wrong = certify(bos(T=3, L=2, as_printed=True))
    >>> bool(wrong), str(wrong)
    (False, 'REFUTED histogram: input [0, 1], expected 1, predicted 2')
    >>> Certificate.from_json(wrong.to_json()) == wrong
    True
    """

    verdict: Verdict
    claim: str | None
    task: str
    parameters: dict[str, Any]
    reading: str
    method: str
    inputs_covered: int | None
    argument: str | None = None
    margin: float | None = None
    margin_exact: str | None = None
    margin_per_count: tuple[float | None, ...] | None = None
    tightest: dict[str, Any] | None = None
    counterexample: dict[str, Any] | None = None
    assumptions: tuple[str, ...] = ()
    error_share: tuple[Fraction, Fraction] | None = None
    reason: str | None = None
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict is Verdict.REFUTED and self.counterexample is None:
            raise ValueError("REFUTED without a counterexample")
        if self.verdict is Verdict.UNKNOWN and not self.reason:
            raise ValueError("UNKNOWN without a reason")
        if self.verdict is Verdict.PROVED and self.counterexample is not None:
            raise ValueError("PROVED with a counterexample")

    def __bool__(self) -> bool:
        """True exactly for PROVED."""
        return self.verdict is Verdict.PROVED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __str__(self) -> str:
        return f"{self.verdict.value} {self.task}{self._says()}"

    def __repr__(self) -> str:
        return f"<Certificate {self.verdict.value} {self.task}, {self.read_as}>"

    def _says(self) -> str:
        """Returns the rest of the one line, after verdict and task."""
        if self.verdict is Verdict.PROVED:
            inputs = "infinitely many" if self.inputs_covered is None else decimal(self.inputs_covered)
            margin = "" if _finite(self.margin) is None else f", margin at least {below(self.margin or 0.0)}"
            return f": all inputs ({inputs}){margin}, reading {self.read_as}"
        if self.counterexample is not None:
            return f": {in_words(self.counterexample)}{'' if self.reading == READING_REAL else f', in {self.read_as}'}"
        return f": {self.reason}"

    @property
    def read_as(self) -> str:
        """The reading with the format that it rounds to, and that of sums where it is a wider one.

        >>> said = {"precision": "bfloat16", "accumulate": "float32"}
        >>> Certificate(Verdict.PROVED, None, "t", said, READING_DTYPE, "certified", 9).read_as
        'bfloat16 with sums in float32, any order'
        """
        format, wider = self.parameters.get("precision"), self.parameters.get("accumulate")
        if self.reading == READING_BIT_EXACT and self.method != CERTIFIED:
            format = format or self.parameters.get("dtype")  # a kernel computes in the dtype of the weights
        if self.reading == READING_REAL or format is None:
            return self.reading
        if self.reading == READING_BIT_EXACT:
            return f"{self.reading} in {format}"
        sums = "" if wider in (None, format) else f" with sums in {wider}"
        return f"{format}{sums}, {self.reading.removeprefix('dtype, ')}"

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain JSON values; counts of inputs are decimal strings.

        >>> certificate = Certificate(Verdict.PROVED, None, "t", {}, READING_REAL, "certified", 32**10)
        >>> certificate.to_dict()["inputs_covered"]
        '1125899906842624'
        """
        share = None
        if self.error_share is not None:
            share = [float_at_most(self.error_share[0]), float_at_least(self.error_share[1])]
        return {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "claim": self.claim,
            "task": self.task,
            "parameters": self.parameters,
            "reading": self.reading,
            "method": self.method,
            "argument": self.argument,
            "inputs_covered": "infinite" if self.inputs_covered is None else decimal(self.inputs_covered),
            "margin": _finite(self.margin),
            "margin_exact": self.margin_exact,
            "margin_per_count": None if self.margin_per_count is None else [_finite(m) for m in self.margin_per_count],
            "tightest": _finite_margin(self.tightest),
            "counterexample": self.counterexample,
            "assumptions": list(self.assumptions),
            "error_share": share,
            "reason": self.reason,
            "seconds": self.seconds,
            **self.extra,
        }

    def flat(self) -> dict[str, str | float | int | bool | None]:
        """The certificate as one level of plain values, for loggers: nested names are joined by dots, lists are text.

        >>> certificate = Certificate(Verdict.PROVED, None, "t", {"T": 3}, READING_REAL, "certified", 9, margin=0.5)
        >>> {name: value for name, value in certificate.flat().items() if name in ("verdict", "parameters.T", "margin")}
        {'verdict': 'PROVED', 'parameters.T': 3, 'margin': 0.5}
        """
        return dict(_flattened("", self.to_dict()))

    def _repr_html_(self) -> str:
        """The verdict in a line, and below it to unfold all fields and the margins as bars, for notebooks."""
        from html import escape

        rows = {name: value for name, value in self.to_dict().items() if value is not None}
        if "tree" in rows:  # its data are for `verify check`
            rows["tree"] = {name: value for name, value in rows["tree"].items() if name != "data"}
        margins = [m for m in rows.pop("margin_per_count", []) if m is not None]
        assumptions = "<br>".join(escape(text) for text in rows.pop("assumptions"))
        cells = {name: escape(_plain(value)) for name, value in rows.items()} | {"assumptions": assumptions}
        bars = "".join(
            f'<tr><td>{k}</td><td>{below(m)}</td><td><div style="background:#0072B2;height:0.7em;'
            f'width:{120 * m / max(margins):.0f}px"></div></td></tr>'
            for k, m in enumerate(margins, 1)
            if max(margins) > 0
        )
        body = "".join(f"<tr><th>{name}</th><td>{cell}</td></tr>" for name, cell in cells.items())
        counts = f"<table><tr><th>count</th><th>margin at least</th></tr>{bars}</table>" if bars else ""
        head = f'<b style="color:{COLOURS[self.verdict]}">{self.verdict.value}</b> {escape(self.task + self._says())}'
        return f"<p>{head}</p><details><summary>all fields</summary><table>{body}</table>{counts}</details>"

    def about(self, weights: bytes) -> Certificate:
        """The certificate with the digest of the file that holds the weights."""
        import hashlib

        return replace(self, extra=self.extra | {"weights_sha256": hashlib.sha256(weights).hexdigest()})

    def to_json(self) -> str:
        """One JSON object on one line."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Reads back what `to_json` wrote.

        Raises: BadInput, in one line, for what is no certificate.
        """
        try:
            said = json.loads(text, parse_constant=_refuse_constant)
            if said.pop("schema", SCHEMA) != SCHEMA:  # older files name none
                raise ValueError(f"its schema is not {SCHEMA}")
            fields = {name: said.pop(name) for name in KEYS}
            covered, share = fields["inputs_covered"], fields["error_share"]
            fields["verdict"] = Verdict(fields["verdict"])
            fields["inputs_covered"] = None if covered == "infinite" else whole(covered)
            fields["error_share"] = None if share is None else (Fraction(share[0]), Fraction(share[1]))
            fields["assumptions"] = tuple(fields["assumptions"])
            if fields["margin_per_count"] is not None:
                fields["margin_per_count"] = tuple(fields["margin_per_count"])
            return cls(**fields, extra=said)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise BadInput(f"certificate: not what to_json writes ({what[:120]}). Save it again.") from None


# The keys that every certificate has in JSON; further ones are the task's own.
KEYS = (
    "verdict",
    "claim",
    "task",
    "parameters",
    "reading",
    "method",
    "argument",
    "inputs_covered",
    "margin",
    "margin_exact",
    "margin_per_count",
    "tightest",
    "counterexample",
    "assumptions",
    "error_share",
    "reason",
    "seconds",
)


def _flattened(prefix: str, value: Json) -> Iterator[tuple[str, Plain]]:
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _flattened(f"{prefix}.{name}" if prefix else name, entry)
    elif value is None or isinstance(value, Plain):
        yield prefix, value
    else:
        yield prefix, json.dumps(value)


def in_words(counterexample: dict[str, object]) -> str:
    """The input of a counterexample, what is expected there, and what the model predicts."""
    shown = counterexample.get("input", counterexample.get("tokens"))
    return f"input {shown}, expected {counterexample.get('expected')}, predicted {counterexample.get('predicted')}"


def whole(digits: str) -> int:
    """The integer of decimal digits, however many; Python's own int stops at 4300 of them.

    >>> whole("12"), whole(decimal(10**5000)) == 10**5000
    (12, True)
    """
    from flint import fmpz

    if not (isinstance(digits, str) and digits.isascii() and digits.isdecimal()):
        raise ValueError(f"inputs_covered: {str(digits)[:40]!r} is no number")
    return int(fmpz(digits))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(x: float | None) -> float | None:
    return x if x is not None and math.isfinite(x) else None


def _plain(value: object) -> str:
    return ", ".join(f"{k} = {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _finite_margin(case: dict[str, Any] | None) -> dict[str, Any] | None:
    return case if case is None or "margin" not in case else case | {"margin": _finite(case["margin"])}


def rounded_margin(certificate: Certificate, digits: int = 4) -> float | None:
    """Returns a margin for tables: a bound is rounded down, the value at a counterexample to nearest. None where
    infinite.

    >>> rounded_margin(Certificate(Verdict.PROVED, None, "t", {}, "real", "certified", 9, margin=0.4999998288))
    0.4999
    """
    margin = certificate.margin
    if margin is None or math.isinf(margin):
        return None
    is_bound = certificate.verdict is Verdict.PROVED
    return float(below(margin, digits) if is_bound else f"{margin:.{digits}g}")
