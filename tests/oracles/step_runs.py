"""Whether a certificate about a step that was traced is false: its program run by torch, one string at a time.

It shares nothing with the prover or the checker. In real arithmetic the program runs in float64; in a format
evaluations within the contract are drawn, with every rounding by hand. What is within TOLERANCE of not being so is not
called false.
"""

import base64
import hashlib
import itertools
import json

import safetensors.torch
import torch
from oracles import graph_in_dtype, graph_runs, number_words
from oracles.graph_runs import NO_PROGRAM, TOLERANCE, Lie, say

MOST, EVALUATIONS = 300, 6  # strings, and evaluations of each


def falsehood(weights, certificate, evaluations=EVALUATIONS):
    """What is false about a certificate, None where nothing was found."""
    try:
        c = json.loads(certificate)
        say(c["weights_sha256"] == hashlib.sha256(weights).hexdigest(), "the digest")
        precision = c["parameters"].get("precision")
        judge = proved if c["verdict"] == "PROVED" else refuted
        try:
            judge(c, Cell(weights, c), range(evaluations if precision else 1), TOLERANCE * (not precision))
        except (RuntimeError, IndexError, TypeError, KeyError, ValueError, AttributeError) as error:
            raise Lie(f"{NO_PROGRAM}: {error}") from None
    except Lie as lie:
        return str(lie)
    return None


class Cell:
    """What a certificate says is run, and which class is right after a string."""

    def __init__(self, weights, c):
        self.tensors, self.program, self.said = safetensors.torch.load(weights), c["program"], c["parameters"]
        self.task, self.precision = self.said.get("task"), self.said.get("precision")
        is_one = self.task in ("modular", "vanilla", "first-homogeneous")
        self.lines = None
        if self.task in number_words.WORDED:
            self.lines = number_words.lines(self.task, self.said["vocabulary"], c["length"])
            self.tokens = []
            return
        self.tokens = self.program.get("tokens") or [*range(1 if is_one else self.said["types"])]

    def due(self, string):
        """The right class, None where none is judged."""
        if self.lines is not None:
            return next(right[len(string) - 1] for tokens, right in self.lines if tokens[: len(string)] == string)
        if self.task is None:
            place = 0
            for token in string:
                place = self.program["steps"][place][self.program["tokens"].index(token)]
            return self.program["answers"][place]
        n = string.count(string[-1])
        if self.task == "first-homogeneous":
            return int(len(string) == 1)
        if self.task == "vanilla":
            return n if n <= self.said["vocabulary"] else None
        C, m = self.said.get("max_count"), self.said.get("modulus")
        return None if C is not None and n > C else n if m is None else (n - 1) % m

    def margin(self, string, seed):
        """The least difference after a string in one evaluation, infinite where nothing is judged."""
        n, due = self.program["numbers"], self.due(string)
        state = torch.tensor(self.program.get("start") or [0.0] * n, dtype=torch.float64)
        if due is None:
            return float("inf")
        for i, token in enumerate(string):
            out = self.after(state, token, hash((seed, string, i)) % 2**31)
            state, logits = out[:n], out[n:]
        gaps = [float(logits[due] - y) for k, y in enumerate(logits) if k != due]
        return min(gaps) if all(gap == gap for gap in gaps) else float("nan")

    def after(self, state, token, seed):
        """All numbers after one more token."""
        nodes = [self.given(node, state) if node["op"] == "state" else node for node in self.program["step"]["nodes"]]
        graph = {**self.program["step"], "nodes": nodes}
        if self.precision is None:
            return graph_runs.run(graph, self.tensors, (token,))[0].double().flatten()
        run = graph_in_dtype.DrawnEvaluation(self.precision, None, seed)
        return run.run(graph, self.tensors, (token,)).double().flatten()

    def given(self, node, state):
        """A part of the state as a tensor that is stored."""
        part = state[node["at"] : node["at"] + torch.Size(node["shape"]).numel()]
        data = base64.b64encode(part.contiguous().view(torch.uint8).numpy().tobytes()).decode()
        return {"op": "stored", "data": data, "shape": node["shape"], "dtype": "float64"}


def strings(cell, length):
    """All strings of one token to so many, or all beginnings of a task's lines, as many as are run."""
    if cell.lines is not None:
        return [tokens[:t] for tokens, _ in cell.lines for t in range(1, len(tokens) + 1)]
    tokens = cell.tokens
    every = (s for n in range(1, length + 1) for s in itertools.product(tokens, repeat=n))
    return [*itertools.islice(every, MOST)]


def proved(c, cell, seeds, slack):
    K, length = len(cell.tokens), c["length"]
    total = length if K < 2 else (K ** (length + 1) - K) // (K - 1)
    if cell.lines is not None:
        total = len(strings(cell, length))
    elif c["parameters"].get("model", "").endswith(" blocks"):
        total = length if K == 1 else K**length
    say(c["inputs_covered"] == str(total), "how many strings there are")
    half = (c["margin"] or 0) / (1 if cell.precision is None else 2)
    for string in strings(cell, length):
        least = min(cell.margin(string, seed) for seed in seeds)
        say(not (least < half - slack or least <= -slack), f"{string} has the margin {least}, not {half}")


def refuted(c, cell, seeds, slack):
    case = c["counterexample"]
    string, first = tuple(case["input"]), int(c["parameters"].get("model", "").endswith(" blocks"))
    say(case["expected"] == cell.due(string) + (first if "modulus" in cell.said else 0), "what is expected")
    say(min(cell.margin(string, seed) for seed in seeds) <= (c["margin"] if cell.precision is None else 0) + slack
        or cell.precision is not None, f"{string} is right")  # fmt: skip
    for shorter in strings(cell, len(string) - 1) if case.get("is_first") else ():
        say(min(cell.margin(shorter, seed) for seed in seeds) > -slack, f"{shorter} is wrong, too")
