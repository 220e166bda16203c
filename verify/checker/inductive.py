"""Certificates about recurrent networks that count: the header, and which part of the checker decides the rest."""

import hashlib
from typing import Any

from verify.checker import gated, linear, recurrent, rounded, selective
from verify.checker.reading import NOT_CHECKABLE, Refusal, as_text, read_json, require

SELECTIVE = ("selective", "selective-modular")
SIZES: dict[Any, list[str]] = {
    "modular": ["modulus"], "vanilla": ["vocabulary"], "first-homogeneous": [],
    "selective": ["types", "max_count"], "selective-modular": ["types", "max_count", "modulus"],
}  # fmt: skip
TRUSTED = ["seconds", "claim", "tightest", "float64_predicts", "assumptions", "argument"]
RATE = "the rate of the invariant"
TRACE = "that torch runs through the saved states"
KEYS = {"claim", "task", "parameters", "reading", "method", "argument", "inputs_covered", "margin", "margin_exact",
        "margin_per_count", "tightest", "counterexample", "assumptions", "error_share", "reason", "seconds", "verdict",
        "weights_sha256", "length"}  # fmt: skip


def check(weights: bytes, certificate: bytes) -> tuple[str, list[str]]:
    """The verdict that holds, and the fields taken on trust. Raises: Refusal with the reason and the exit code."""
    c = read_json(certificate, "the certificate")
    require(c.get("task") == "inductive", f"task: {as_text(c.get('task'))[:80]} is not inductive")
    require(c.get("weights_sha256") == hashlib.sha256(weights).hexdigest(), "weights_sha256: is another file's")
    verdict = c.get("verdict")
    require(verdict != "UNKNOWN", "the certificate itself says UNKNOWN, which claims nothing", NOT_CHECKABLE)
    require(verdict in ("PROVED", "REFUTED"), f"verdict: {verdict!r} is none")
    said = c.get("parameters")
    require(isinstance(said, dict), "parameters: must be an object")
    require(said.get("model") != "transformer", "certificates about transformers are not checked", NOT_CHECKABLE)
    length = c.get("length")
    require(length == "all" or type(length) is int and length > 0, f"length: {length!r} is none")
    require(as_text(said.get("length")) == as_text(length), "parameters: another length")
    try:
        own = _decided(weights, c, said)
        _check_parameters(said, c["reading"])
        _check_case(c)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, OverflowError) as error:
        raise Refusal(f"the certificate is malformed ({type(error).__name__}: {error})") from None
    for name, value in (("margin_exact", None), ("margin_per_count", None), ("error_share", None), ("reason", None)):
        require(c.get(name) is value, f"{name}: must be null")
    require({*c} == KEYS | own, f"the fields must be {', '.join(sorted(KEYS | own))}")
    return verdict, TRUSTED + [RATE] * ("invariant" in own) + [TRACE] * (c["reading"] == "bit-exact")


def _check_parameters(said: dict[str, Any], reading: str) -> None:
    """What identifies the task and the network, and nothing else; what each value is has been compared by now."""
    numbers = [*SIZES[said["task"]], "units", "layers"]
    words = ["task", "model", "dtype"] + ["activation"] * (said["model"] == "rnn")
    words += ["precision"] * (reading == "dtype, any order") + ["accumulate"] * ("accumulate" in said)
    due = {*numbers, *words, "length"}
    require({*said} == due, f"parameters: must be {', '.join(sorted(due))}")
    require(all(type(said[name]) is int for name in numbers), f"parameters: {', '.join(numbers)} must be whole numbers")


def _check_case(c: dict[str, Any]) -> None:
    """A counterexample has no other fields, and whole numbers are such."""
    case = c.get("counterexample")
    found = [c[name] for name in ("right_to",) if name in c]
    if case is not None:
        names = {"input", "length", "expected", "predicted"}
        require(names <= {*case} <= {*names, "is_first", "float64_predicts"}, "counterexample: has other fields")
        found += [case[name] for name in ("length", "expected", "predicted")]
        found += case["input"] if isinstance(case["input"], list) else []
    require(all(type(x) is int for x in found), "counterexample, right_to: must be whole numbers")


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
