"""Certificates about recurrent networks that count: the header, and which part of the checker decides the rest."""

import hashlib
from typing import Any

from verify.checker import gated, linear, recurrent, rounded, selective
from verify.checker.reading import NOT_CHECKABLE, Refusal, read_json, require

SELECTIVE = ("selective", "selective-modular")
TRUSTED = ["seconds", "tightest", "float64_predicts", "assumptions", "argument"]
TRACE = "that torch runs through the saved states"
KEYS = {"claim", "task", "parameters", "reading", "method", "argument", "inputs_covered", "margin", "margin_exact",
        "margin_per_count", "tightest", "counterexample", "assumptions", "error_share", "reason", "seconds", "verdict",
        "weights_sha256", "length"}  # fmt: skip


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = read_json(certificate, "the certificate")
    require(c.get("weights_sha256") == hashlib.sha256(weights).hexdigest(), "weights_sha256: is another file's")
    verdict = c.get("verdict")
    require(verdict != "UNKNOWN", "the certificate itself says UNKNOWN, which claims nothing", NOT_CHECKABLE)
    require(verdict in ("PROVED", "REFUTED"), f"verdict: {verdict!r} is none")
    said = c.get("parameters")
    require(isinstance(said, dict), "parameters: must be an object")
    length = c.get("length")
    require(length == "all" or type(length) is int and length > 0, f"length: {length!r} is none")
    require(said.get("length") == length, "parameters: another length")
    try:
        own = _decided(weights, c, said)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, OverflowError) as error:
        raise Refusal(f"the certificate is malformed ({type(error).__name__}: {error})") from None
    for name, value in (("margin_exact", None), ("margin_per_count", None), ("error_share", None), ("reason", None)):
        require(c.get(name) is value, f"{name}: must be null")
    require({*c} == KEYS | own, f"the fields must be {', '.join(sorted(KEYS | own))}")
    return verdict, TRUSTED + [TRACE] * (c["reading"] == "bit-exact")


def _decided(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> set[str]:
    """The fields that this kind of certificate has beside KEYS, all of them checked."""
    reading, method, model = c.get("reading"), c.get("method"), said.get("model")
    if (reading, method) == ("bit-exact", "exhaustive"):
        return rounded.repeated(weights, c, said)
    require(method == "certified", f"a run by method {method!r} is not repeated", NOT_CHECKABLE)
    require(reading in ("real", "dtype, any order"), f"the reading {reading!r} is not checked", NOT_CHECKABLE)
    if model in gated.KINDS:
        require(reading == "real", f"the reading {reading!r} is not checked", NOT_CHECKABLE)
        return gated.decide(weights, c, said)
    if said.get("task") in SELECTIVE:
        return selective.decide(weights, c, said)
    if reading != "real":
        return rounded.for_ever(weights, c, said)
    require("precision" not in said, "parameters: real arithmetic has no precision")
    if model == "s4":
        return linear.rotation(weights, c, said)
    if model in linear.KINDS or "repeats" in c:
        return linear.exact(weights, c, said)
    require(model in recurrent.GATES, f"parameters: no recurrent model, but {model!r}", NOT_CHECKABLE)
    return recurrent.decide(weights, c, said)
