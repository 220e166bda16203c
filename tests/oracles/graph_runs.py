"""Whether a certificate about a module is false: its program run by torch itself in float64, one input at a time.

It shares nothing with the prover or the checker. What is within TOLERANCE of not being so is not called false, and
nothing is where numbers above LARGEST occur, beside which float64 loses others.
"""

import base64
import hashlib
import itertools
import json

import safetensors.torch
import torch

TOLERANCE, LARGEST = 1e-9, 1e5
NO_PROGRAM = "torch does not run the program"
RULES = {"largest token": max, "smallest token": min}


class Lie(Exception):
    """What is false."""


def say(holds, what):
    if not holds:
        raise Lie(what)


def falsehood(weights, certificate):
    """What is false about a certificate, None where nothing was found."""
    try:
        c = json.loads(certificate)
        say(c["weights_sha256"] == hashlib.sha256(weights).hexdigest(), "the digest")
        try:
            found = dict(margins(c["program"], safetensors.torch.load(weights)))
        except (RuntimeError, IndexError, TypeError, KeyError, ValueError, AttributeError) as error:
            raise Lie(f"{NO_PROGRAM}: {error}") from None
        (proved if c["verdict"] == "PROVED" else refuted)(c, found)
    except Lie as lie:
        return str(lie)
    return None


def proved(c, found):
    say(c["inputs_covered"] == str(len(found)), "how many inputs there are")
    say(not any(margin <= (c["margin"] or 0) - TOLERANCE for margin in found.values()), "the margin")
    say(c["counts"] == {"right": str(len(found)), "wrong": "0", "undecided": "0"}, "the counts")
    say(c["tightest"] is None or tuple(c["tightest"]["input"]) in found, "the tightest input")


def refuted(c, found):
    say(not found[tuple(c["counterexample"]["input"])] >= (c["margin"] or 0) + TOLERANCE, "the counterexample")
    right = sum(margin > TOLERANCE for margin in found.values())
    wrong = sum(margin < -TOLERANCE for margin in found.values())
    counts = {name: int(x) for name, x in c["counts"].items()}
    say(sum(counts.values()) == len(found), "how many inputs there are")
    say(counts["right"] <= len(found) - wrong and counts["wrong"] <= len(found) - right, "the counts")
    say(not any(found[tuple(tokens)] >= TOLERANCE for tokens in c["wrong_inputs"]), "a wrong input")


def margins(program, tensors):
    """Each input with its margin."""
    graphs = {graph["length"]: graph for graph in program["graphs"]}
    for tokens, due, columns, part in inputs(program):
        output, largest = run(graphs[len(tokens)], tensors, tokens)
        yield tokens, margin(output, due, columns, part) if largest <= LARGEST else float("nan")


def inputs(program):
    """Each input with the classes that are right, those that take part (None for all), and its part."""
    number = itertools.count()
    for part in program["inputs"]:
        rows = part["rows"] if "rows" in part else itertools.product(*part["sets"])
        for tokens in map(tuple, rows):
            yield tokens, due_of(program["answers"], tokens, next(number)), program["classes"], part


def margin(output, due, columns, part):
    logits = output[0]
    logits = logits.reshape(1, -1) if logits.ndim == 1 or len(logits) == 1 else logits[part["positions"]]
    columns = [*(range(logits.shape[1]) if columns is None else columns)]
    gaps = [row[y] - row[c] for row, y in zip(logits, due, strict=True) for c in columns if c != y]
    say(all(y in columns for y in due), "an answer is no class")
    return float(min(gaps)) if gaps else float("inf")


def due_of(answers, tokens, number):
    if "table" in answers:
        return answers["table"][number]
    name, _, modulus = answers["rule"].partition(" modulo ")
    return [sum(tokens) % int(modulus) if modulus else RULES[name](tokens)]


def run(graph, tensors, tokens):
    values, largest = [], 0.0
    for node in graph["nodes"]:
        values.append(value(node, values, tensors, tokens))
        if isinstance(values[-1], torch.Tensor):
            say(list(values[-1].shape) == node["shape"], "a shape")
            values[-1] = values[-1].double() if values[-1].is_floating_point() else values[-1]
            finite = values[-1][values[-1].double().isfinite()]
            numbers = [
                abs(x) for x in node.get("args", []) if type(x) in (int, float) and node["op"] != "aten.slice.Tensor"
            ]
            largest = max(largest, *numbers, float(finite.double().abs().max()) if finite.numel() else 0.0, 0.0)
    return values[graph["output"]], largest


def value(node, values, tensors, tokens):
    name = node["op"]
    if name == "tokens":
        return torch.tensor([tokens])
    dtype = getattr(torch, node["dtype"] or "float64")
    if name == "stored":
        if "name" in node:
            say(tensors[node["name"]].dtype == dtype, "a dtype")
            return tensors[node["name"]]
        raw = base64.b64decode(node["data"])
        found = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype) if raw else torch.empty(0, dtype=dtype)
        return found.reshape(node["shape"])

    args, kwargs = given(node["args"], values), given(node["kwargs"], values)
    if name == "getitem":
        return args[0][args[1]]
    _, base, overload = name.split(".")
    if base in ("_assert_tensor_metadata", "_assert_async"):
        return None
    operation = getattr(getattr(torch.ops.aten, base), overload)
    if "dtype" in kwargs:
        asked = getattr(torch, kwargs["dtype"])
        is_rounded = base in ("full", "scalar_tensor", "full_like")
        kwargs["dtype"] = asked if is_rounded or not asked.is_floating_point else torch.float64
    return operation(*args, **kwargs)


def given(x, values):
    """Arguments with the values of the nodes that they name."""
    if isinstance(x, dict):
        if {*x} == {"node"}:
            return values[x["node"]]
        return float(x["number"]) if {*x} == {"number"} else {key: given(y, values) for key, y in x.items()}
    return [given(y, values) for y in x] if isinstance(x, list) else x
