"""Any module: its graph followed again on every input; what is true is accepted, and nothing that is false."""

import base64
import json
import random
import struct
from unittest import mock

import pytest
import safetensors.torch
import torch
from models.certificates_of_modules import Largest
from models.one_layer import Encoder, Plain
from models.saved_modules import as_proof, fitting, of_other_weights, outcome, saved
from models.selection import every, first
from oracles.graph_runs import NO_PROGRAM, falsehood, run
from torch import nn

from tests.planted import planted
from verify.checker import graphs
from verify.checker.graphs import Follower, TracedGraph
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.engine import margins
from verify.engine.guard import Guard
from verify.frame import decide
from verify.module import Task, first_repeated, largest, strings, tokens


class Adder(nn.Module):
    """Attention over a b =, an MLP, and logits at =; trained it adds modulo P."""

    def __init__(self, P, d=8, heads=2, dtype=torch.float32):
        super().__init__()
        self.E, self.places = nn.Embedding(P + 1, d), nn.Parameter(torch.randn(3, d) / 2)
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.up, self.down, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Linear(d, P, bias=False)
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1), persistent=False)
        self.to(dtype)

    def forward(self, t):
        x = self.E(t) + self.places
        x = x + self.attention(x, x, x, attn_mask=self.mask.to(x.dtype), need_weights=False)[0]
        return self.out(x + self.down(torch.relu(self.up(x))))[:, -1]


def adder(P, steps, dtype=torch.float32):
    torch.manual_seed(P)
    module, task = Adder(P), Task(tokens([P, P, [P]]), lambda t: (t[:, 0] + t[:, 1]) % P)
    rows = torch.cat([*task.inputs.parts[0].batches()])
    optimiser = torch.optim.Adam(module.parameters(), 0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(rows), task.expected(rows)).backward()
        optimiser.step()
    return module.to(dtype), task


class Last(nn.Module):
    """The logits 7 for each token's own class, at every position."""

    def __init__(self, n):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(7 * torch.eye(n))

    def forward(self, t):
        return torch.where(t.unsqueeze(-1) < 0, 0.5, self.table(t).cumsum(1) - self.table(t).cumsum(1).detach() / 2)


def drawn(module, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for W in module.parameters():
            W.copy_(torch.randn_like(W) * max(1, W.shape[-1]) ** -0.5 + (W.ndim == 1))
    return module


def a_norm(seed, **options):
    return drawn(Plain(3, 3, d=4, heads=2, hidden=4, **options), seed)


MODELS = {
    "built, every position": lambda: (Last(3), Task(strings(3, 3), lambda t: t[:, -1])),
    "built, largest": lambda: (Largest(4), Task(tokens([4, [1, 3], 4]), largest)),
    "built, where": lambda: (Largest(4), Task(tokens([4, 4], where=lambda t: t[:, 0] < t[:, 1]), lambda t: t[:, 1])),
    "trained": lambda: adder(5, 120),
    "trained, bfloat16": lambda: adder(4, 120, torch.bfloat16),
    "trained, half": lambda: adder(5, 25),
    "LayerNorm, GELU": lambda: (a_norm(1, norm="layer", act="gelu"), Task(tokens([3] * 3), largest)),
    "RMSNorm, SiLU": lambda: (a_norm(2, norm="rms", act="silu", gated=True), Task(tokens([3] * 3), largest)),
    "encoder": lambda: (drawn(Encoder(3, 3, norm_first=True), 1), Task(tokens([3] * 3), first_repeated(2))),
    "classes": lambda: (Largest(4), Task(tokens([[0, 2], [2]]), lambda t: t[:, 1] * 0 + 2, classes=[0, 2])),
}  # fmt: skip


class Saved(dict):
    """Weights and certificates by the names of MODELS, each made when it is first asked for."""

    def __missing__(self, name):
        self[name] = saved(*MODELS[name]())
        return self[name]


@pytest.fixture(scope="module")
def files():
    return Saved()


@pytest.mark.parametrize("name", MODELS)
def test_what_the_prover_says_holds(name, files):
    weights, text = files[name]
    said = json.loads(text)
    assert said["verdict"] == ("PROVED" if name.startswith(("built, l", "built, w", "classes")) else said["verdict"])
    assert falsehood(weights, text) is None
    assert outcome(weights, text) == (0, said["verdict"])


@pytest.mark.parametrize("seeds", first(1, [range(3), *(range(i, i + 60) for i in range(3, 603, 60))]), ids=str)
@pytest.mark.parametrize("name", every(3, MODELS))
def test_a_forged_proof_of_other_weights_holds_only_where_it_is_true(name, seeds, files):
    weights, text = files[name]
    for moved, forged, drawn_by in of_other_weights(weights, text, name, seeds):
        code, answer = outcome(moved, forged)
        assert code or falsehood(moved, forged) is None, (drawn_by, answer)


def leaves(value, path=()):
    """Where a certificate has values: every one, and every object and list."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def at(value, path):
    return at(value[path[0]], path[1:]) if path else value


OTHERS = [None, True, 0, 1, 2, -1, 3, 0.5, -1.0, 1e300, [], {}, [0], [1, 0]]
OTHERS += ["", "0", "1", "float64", "PROVED", "aten.neg.default"]
TRUSTED = {"seconds", "argument", "decided_by"}  # and places within others


def other_values(value):
    near = [value + 1, value - 1, value * 2] if type(value) in (int, float) else []
    near += [value[::-1], value[:-1], [*value, *value]] if isinstance(value, list) else []
    return [x for x in [*OTHERS, *near] if json.dumps(x) != json.dumps(value)]


def is_first(path):
    """Of many wrong inputs, the first."""
    return path[0] != "wrong_inputs" or not any(path[1:2])


AS_TRUE = (("parameters", "positions"), ("counterexample", "input"))  # where another value may be true, too


def is_trusted(path):
    within = [("parameters", "module"), ("graph", "sha256"), ("graph", "torch"), ("tightest", "input")]
    return path[0] in TRUSTED or any(path[: len(p)] == p for p in within)


@pytest.mark.parametrize("name", first(1, ["built, where", "built, every position", "trained, half", "encoder"]))
def test_every_field_is_refused_when_changed_or_trusted(name, files):
    """A smaller margin is true, too, another input may be wrong alike, and a place counted from the end is the same."""
    weights, text = files[name]
    said, outside = json.loads(text), 0
    for path in [path for path in leaves(said) if path and path[0] != "program" and is_first(path)]:
        for value in other_values(at(said, path)):
            forged = json.dumps(replaced(said, path, value))
            if outcome(weights, forged)[0] == 0 and not is_trusted(path):
                outside += 1
                is_bound = path[-1] in ("margin", "tightest", "predicted") or path[:2] in AS_TRUE
                assert is_bound and falsehood(weights, forged) is None, (path, value)
    assert outside < 20
    for key in {*said} - {"schema"}:  # which older files do not name
        assert outcome(weights, json.dumps({k: v for k, v in said.items() if k != key}))[0], key


SEEDS = [range(2), range(2, 20), *(range(i, i + 500) for i in range(20, 5020, 500))]


@pytest.mark.parametrize("seeds", first(1, SEEDS), ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_forged_programs_hold_only_where_they_are_true(name, seeds, files):
    """Another program is another statement: what holds must be true of it, as torch runs it.

    What torch does not run, such as a number in place of a tensor, is the trace of no module, and is left out.
    """
    weights, text = files[name]
    said = json.loads(text)
    places = [path for path in leaves(said["program"]) if path]
    names = sorted({node["op"] for node in said["program"]["graphs"][0]["nodes"]})
    for seed in seeds:
        draw = random.Random(f"{name} {seed}")
        path = draw.choice(places)
        value = draw.choice(other_values(at(said["program"], path)) + names)
        forged = json.dumps(said | {"program": replaced(said["program"], path, value)})
        code, answer = outcome(weights, forged)
        false = None if code else falsehood(weights, forged)
        assert false is None or false.startswith(NO_PROGRAM), (seed, path, value, answer, false)


def whole(dtype, *numbers):
    """A tensor that the certificate has, of the shape (n,), and of a dtype of few bytes."""
    raw = struct.pack(f"<{len(numbers)}" + {"int8": "b", "uint8": "B", "bool": "?"}[dtype], *numbers)
    return {"op": "stored", "data": base64.b64encode(raw).decode(), "shape": [len(numbers)], "dtype": dtype}


def floats(*numbers, shape=None):
    raw = base64.b64encode(struct.pack(f"<{len(numbers)}d", *numbers)).decode()
    return {"op": "stored", "data": raw, "shape": shape or [len(numbers)], "dtype": "float64"}


def node(op, args, dtype, shape, /, **kwargs):
    """An operation on those before: a string of digits in `args` is how many nodes further back one stands."""
    return {"op": f"aten.{op}", "args": args, "kwargs": kwargs, "shape": shape, "dtype": dtype}


CAUSAL = {"is_causal": True, "scale": -1.0}
# Operations that torch computes otherwise than it looks; what the last one gives is true, or no number.
LIES = {
    "a wrap in fewer bits": [
        whole("int8", 100), node("add.Tensor", ["1", "1"], "int64", [1]), node("lt.Scalar", ["1", 0], "bool", [1]),
    ],
    "below 0 without a sign": [
        whole("uint8", 1), node("neg.default", ["1"], "int64", [1]), node("gt.Scalar", ["1", 0], "bool", [1]),
    ],
    "a wrap in a part": [
        whole("int8", 100, 1), node("split.Tensor", ["1", 1], None, None),
        {"op": "getitem", "args": ["1", 0], "kwargs": {}, "shape": [1], "dtype": "int64"},
        node("add.Tensor", ["1", "1"], "int64", [1]), node("lt.Scalar", ["1", 0], "bool", [1]),
    ],
    "truths that are counted": [
        whole("bool", 1), node("add.Tensor", ["1", "1"], "int64", [1]), node("add.Tensor", ["1", "1"], "int64", [1]),
        node("ne.Scalar", ["1", 2], "bool", [1]),
    ],
    "a multiple of a truth": [
        whole("bool", 1), node("add.Tensor", ["1", "1"], "int64", [1], alpha=-1),
        node("ne.Scalar", ["1", 0], "bool", [1]),
    ],
    "a cast that cuts": [
        floats(0.5), node("_to_copy.default", ["1"], "float32", [1], dtype="int64"),
        node("ne.Scalar", ["1", 0.5], "bool", [1]),
    ],
    "a constant that is cut": [
        node("full.default", [[1], 2.5], "float64", [1], dtype="int64"), node("ne.Scalar", ["1", 2.5], "bool", [1]),
    ],
    "a truth that is made a number": [
        node("full.default", [[1], True], "int64", [1]), node("add.Tensor", ["1", "1"], "int64", [1]),
        node("ne.Scalar", ["1", 2], "bool", [1]),
    ],
    "a product that wraps": [
        whole("int8", 100), node("reshape.default", ["1", [1, 1]], "int8", [1, 1]), whole("int8", 2),
        node("matmul.default", ["2", "1"], "float32", [1]), node("lt.Scalar", ["1", 0], "bool", [1]),
    ],
    "places that are truths": [
        whole("uint8", 1, 1, 1), floats(5.0, 7.0, 7.0), node("index.Tensor", ["1", ["2"]], "float64", [3]),
        node("slice.Tensor", ["1", 0, 0, 1], "float64", [1]), node("ne.Scalar", ["1", 7], "bool", [1]),
    ],
    "whole numbers cut by floats": [
        whole("int8", 3), node("hardtanh.default", ["1", -0.5, 0.5], "float64", [1]),
        node("ne.Scalar", ["1", 0.5], "bool", [1]),
    ],
    "a truth beside others": [
        whole("bool", 0), node("constant_pad_nd.default", ["1", [1, 0], 0.5], "int64", [2]),
        node("slice.Tensor", ["1", 0, 0, 1], "int64", [1]), node("ne.Scalar", ["1", 0], "bool", [1]),
    ],
    "none of the axes": [
        whole("bool", 1, 0), node("all.dims", ["1", [], True], "bool", [1]),
        node("slice.Tensor", ["1", 0, 0, 1], "bool", [1]),
    ],
    "the sine of infinity": [
        floats(float("inf")), node("sin.default", ["1"], "float64", [1]),
    ],
    "the cosine of infinity": [
        floats(-float("inf")), node("cos.default", ["1"], "float64", [1]),
    ],
    "-inf times a scale": [
        floats(*range(6), shape=[1, 1, 2, 3]),
        node("scaled_dot_product_attention.default", ["1", "1", "1"], "float64", [1, 1, 2, 3], **CAUSAL),
        node("reshape.default", ["1", [6]], "float64", [6]), node("slice.Tensor", ["1", 0, 0, 1], "float64", [1]),
    ],
}  # fmt: skip


def with_lie(said, lie):
    """The proof of a program that adds an eighth of what a lie gives to its last logit, and -50 for a truth."""
    graph = said["program"]["graphs"][0]
    nodes, last = [*graph["nodes"]], lie[-1]
    output = graph["output"]

    def found(x, at):
        return {"node": at - int(x)} if isinstance(x, str) else [found(y, at) for y in x] if isinstance(x, list) else x

    scale = floats(0.0, 0.0, 0.0, -50.0 if last["dtype"] == "bool" else 0.125)
    end = [scale, node("mul.Tensor", ["2", "1"], "float64", [4]), node("add.Tensor", [output, "1"], "float64", [1, 4])]
    for part in [*lie, *end]:
        args = {} if "data" in part else {"args": found(part["args"], len(nodes))}
        nodes.append({**part, **args})
    nodes[-1]["args"][0] = {"node": output}
    names = sorted(n["op"] for n in nodes if n["op"] not in ("stored", "tokens", "getitem"))
    stored = sum(torch.Size(n["shape"]).numel() for n in nodes if n["op"] == "stored")
    program_ = {**said["program"], "graphs": [{**graph, "nodes": nodes, "output": len(nodes) - 1}]}
    parameters = {**said["parameters"], "stored_numbers": stored}
    digest = {**said["graph"], "operations": {name: names.count(name) for name in names}}
    return as_proof(said | {"program": program_, "parameters": parameters, "graph": digest}, 1e-9)


@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_a_factor_without_its_name_is_refused_as_by_torch(name, files):
    x = torch.ones(1)
    with pytest.raises(RuntimeError):
        getattr(torch.ops.aten, name).Tensor(x, x, 2)
    weights, text = files["built, largest"]
    forged = with_lie(json.loads(text), [floats(1.0), node(f"{name}.Tensor", ["1", "1", 2], "float64", [1])])
    assert outcome(weights, json.dumps(forged)) == (NOT_CHECKABLE, mock.ANY)


@pytest.mark.parametrize("name", every(2, LIES))
def test_what_torch_computes_otherwise_does_not_hold(name, files):
    weights, text = files["built, largest"]
    said = with_lie(json.loads(text), LIES[name])
    forged = json.dumps(said)
    if LIES[name][-1]["dtype"] == "bool":
        false = falsehood(weights, forged)
        assert false is not None and not false.startswith(NO_PROGRAM), false
    else:
        output, _ = run(said["program"]["graphs"][0], safetensors.torch.load(weights), (1, 1, 1))
        assert output.isnan().any()
    assert outcome(weights, forged)[0] in (1, NOT_CHECKABLE)


def test_a_whole_number_that_is_rounded_twice_is_not_followed(files):
    """It is nearer to the next number of float32, and the nearest one of float64 is half-way."""
    number, (weights, text) = 2**60 + 2**36 + 1, files["built, largest"]
    lie = [
        node("full.default", [[1], number], "float32", [1], dtype="float32"),
        node("ne.Scalar", ["1", 2.0**60], "bool", [1]),
    ]
    assert torch.full([1], number, dtype=torch.float32).item() == 2.0**60 + 2.0**37
    assert outcome(weights, json.dumps(with_lie(json.loads(text), lie)))[0] == NOT_CHECKABLE


AROUND_ZERO = [floats(2.0), node("sqrt.default", ["1"], "float64", [1]), node("sub.Tensor", ["1", "1"], "float64", [1])]
TRUE = {
    "a sum": [whole("int8", 50), node("add.Tensor", ["1", "1"], "int8", [1])],
    "the square of a ball round 0": [*AROUND_ZERO, node("pow.Tensor_Scalar", ["1", 2], "float64", [1])],
    "GELU of a ball round 0": [*AROUND_ZERO, node("gelu.default", ["1"], "float64", [1], approximate="tanh")],
}


@pytest.mark.parametrize("name", TRUE)
def test_a_program_with_more_that_is_true_holds(name, files):
    weights, text = files["built, largest"]
    true = [*TRUE[name], node("lt.Scalar", ["1", -1], "bool", [1])]
    forged = json.dumps(with_lie(json.loads(text), true))
    assert falsehood(weights, forged) is None and outcome(weights, forged) == (0, "PROVED")


def test_a_fault_in_the_prover_is_found():
    """The least rival for the largest: a proof of a model that is wrong, its runs beside left out."""
    module, task = adder(4, 25)
    right = "put(-1, index, -math.inf).amax(-1)"
    with (
        planted(margins, "own_and_rival", right, "put(-1, index, math.inf).amin(-1)"),
        mock.patch.object(decide, "_compared", lambda finding, *_: finding),
        mock.patch.object(Guard, "check", lambda *_: None),
    ):
        weights, text = saved(module, task)
    assert json.loads(text)["verdict"] == "PROVED" and falsehood(weights, text)
    assert outcome(weights, text)[0] == 1


def test_what_cannot_be_followed_is_not_checkable(files):
    weights, text = files["trained"]
    said = json.loads(text)
    for program_ in ({"reason": "more than 262144 inputs"}, None):
        code, answer = outcome(weights, json.dumps(said | {"program": program_}))
        assert code in (1, NOT_CHECKABLE), answer
    del said["program"]
    assert outcome(weights, json.dumps(said))[0] == NOT_CHECKABLE


def test_a_tie_is_wrong_and_nan_is_nothing():
    module = Largest(3)
    with torch.no_grad():
        module.table[2] = module.table[1] * 2 / 3
    weights, text = saved(module, Task(tokens([3, 3]), largest))
    assert json.loads(text)["verdict"] == "REFUTED" and outcome(weights, text) == (0, "REFUTED")
    broken = bytearray(weights)
    broken[-2:] = struct.pack("<H", 0x7E00)
    said = json.loads(text)
    assert outcome(bytes(broken), fitting(said, bytes(broken)))[0] == 1


@pytest.mark.parametrize("place", range(3))
def test_a_tensor_is_not_taken_apart(place):
    """An array of the checker is a tuple, too: its kind, its shape and its rows are no parts that torch returns."""
    part = {"op": "getitem", "args": [{"node": 0}, place], "kwargs": {}, "shape": None, "dtype": None}
    nodes = [{"op": "tokens", "shape": [1, 2], "dtype": "int64"}, part]
    with pytest.raises(Refusal, match="no part of several"):
        Follower(TracedGraph(2, nodes, 1, {}), 64).output([[0, 1]])


def test_a_node_is_named_by_a_whole_number():
    """What reads the tokens by 1.0 was taken for what no token decides, and all inputs for the first."""
    weights, text = saved(Last(3), Task(tokens([3]), lambda t: t))
    c = json.loads(text)
    words = json.dumps(c["program"]["graphs"])
    (i,) = [i for i, node in enumerate(c["program"]["graphs"][0]["nodes"]) if node["op"] == "tokens"]
    c["program"]["graphs"] = json.loads(words.replace(f'{{"node": {i}}}', f'{{"node": {i}.0}}'))
    c["program"]["answers"] = {"table": [[0]] * 3}
    with mock.patch.object(graphs, "AT_ONCE", 1):
        assert outcome(weights, json.dumps(c))[0] == FAILS
        with planted(graphs, "filled", 'type(given["node"]) is int', "True"):
            assert outcome(weights, json.dumps(c))[0] == 0
